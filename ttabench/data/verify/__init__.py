"""Audits of a dataset on disk: is everything there, and is it what it should be?"""
