"""Audits of a dataset on disk, started by `verify`: is every file there, and is it the right one?"""
