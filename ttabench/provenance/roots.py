"""The code that a cell enters, and with it all code that its number depends on. Imports no torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from ttabench.cell.subset_names import drawn_from
from ttabench.provenance.closure import OWN_TEXT, WHOLE, Graph, Module, Node, Reached, closure
from ttabench.provenance.definitions import BODY
from ttabench.provenance.module_facts import absolute, keep
from ttabench.provenance.modules import (
    OWN,
    method_modules,
    module_facts,
    module_hash,
    network_module,
    network_modules,
    package_of,
    prefix_of,
    shown_path,
)
from ttabench.registry import METHODS, entry_points


@dataclass(frozen=True)
class Code:
    """The code that a number depends on.

    source       SHA-256 (hex) over all definitions that are reached, without names; "" for no code.
    definitions  ``package/module.py: name`` → 16 hex digits of the text of this definition alone.
    reached      the same with what each definition refers to.
    branches     definition → how often it decides what runs; not of whole modules.
    """

    source: str = ""
    definitions: Mapping[str, str] = field(default_factory=dict)
    reached: Reached = field(default_factory=Reached, repr=False, compare=False)
    branches: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash(self.source)

    def refers_as(self, then: Code) -> bool:
        """Whether definitions refer to the same as in `then`, of which hashes of texts are known."""
        texts = {node: then.definitions.get(shown(node), text) for node, text in self.reached.texts.items()}
        return self.reached.source_with(texts) == then.source


NO_CODE = Code()


def _nodes(*names: str) -> tuple[Node, ...]:
    """``module:definition`` or ``module:class.member`` as nodes."""
    found = []
    for name in names:
        module, _, definition = name.partition(":")
        of, _, member = definition.partition(".")
        found.append((f"ttabench.{module}", of, member))
    return tuple(found)


def _of_files(name: str) -> tuple[Node, ...]:
    """A reader of image files, with the decoder, which stands behind the cache of decoded images."""
    return (*_nodes(name), *DECODER)


DECODER = _nodes("data.files.read_image:decode")
# What measures: the process, the images as a stream, the method's preparation and the source data, the score.
MEASURE = _nodes(
    "measure.torch_defaults:default_modes", "measure.torch_defaults:default_kernels",
    "measure.torch_defaults:matrix_products", "measure.prepare:prepared", "measure.test_set:test_set",
    "measure.source_access:SourceImages", "measure.image_stream:Part", "measure.scoring:evaluate",
    "cell.protocol:Protocol",
)  # fmt: skip
STREAM = _nodes("run.stream_of_cell:stream_of", "run.stream_of_cell:checkpoint_of")
STREAMS = {  # by what stands in place of a corruption
    "recurring": STREAM, "gradual": STREAM, "ccc": STREAM,
    "cdc": (*_nodes("run.stream_of_cell:dynamic_stream"), *STREAM[1:]),
    "ccc_hard": (*_nodes("run.stream_of_cell:hard_stream"), *STREAM[1:]),
}  # fmt: skip
FOREIGN = _nodes("data.foreign_set:ForeignSet")  # in streams that a dataset contaminates
READERS = {  # by the first words of a dataset's name; the first that fits counts
    "digits-c": _nodes("data.generated_datasets:CurrentDigits"),
    "cifar10-c-bar": _nodes("data.generated_datasets:CurrentCifarBar"),
    "cifar10.1": _nodes("data.published.natural_shifts:Cifar101"),
    "cifar": _nodes("data.published.cifar:CifarC"),
    "stream of CCC": _of_files("data.own.ccc_shards:CCCShards"),
    "domains": _of_files("data.own.domain_folders:DomainFolders"),
    "images": _of_files("data.own.plain_images:PlainImages"),
    # Of arrays and of image files: a name does not say which, so cells do, see `Cell.image_files`.
    "own": _nodes("data.own.own_arrays:OwnArrays", "data.own.own_corruption_folders:OwnImageFolders"),
    "imagenet-c[": _of_files("data.published.imagenet_subset:ImageNetSubset"),
    "imagenet-c": _of_files("data.published.imagenet:ImageNetC"),
    "imagenet-r[": _of_files("data.published.own_head:OwnHead"),
    "imagenet-a[": _of_files("data.published.own_head:OwnHead"),
    "imagenet-": (
        *_of_files("data.published.natural_shifts:NaturalImageNet"),
        *_nodes("data.published.natural_shifts:NaturalImageNet.scored_classes"),  # a worker asks for them
    ),
    "folders": _of_files("data.published.imagenet:TinyImageNetC"),
}
DRAWN = _nodes("data.balanced_subset:Drawn")  # of which some images are measured: ``digits-c[100]``
NETWORKS = _nodes("models.architectures.build:build")
OF_OTHERS = _nodes(  # for networks that ttabench did not train
    "models.external.external_model:ExternalModel.wrap", "measure.any_network:SourceOfAnyNetwork"
)
SOURCE = "ttabench.measure.source_access"
EXTERNAL = "ttabench.models.external"  # its modules are called like the prefixes of their networks

OUTSIDE: Mapping[str, str] = {
    "ttabench": "gives names to users",
    "ttabench.observe.calibration": "is measured beside the accuracy",
    "ttabench.cell.cell": "is the identity of a result",
    "ttabench.system.work_claims": "shares work between processes",
    "ttabench.observe.collapse": "is an alarm about predictions that are made already",
    "ttabench.system.cores": "counts cores",
    "ttabench.observe.cost": "is measured beside the accuracy",
    "ttabench.data.catalog": "opens data by name; data have a fingerprint",
    "ttabench.data.data_root": "is a folder",
    "ttabench.data.files.fingerprint": "is in the identity of a result",
    "ttabench.data.own.manifest": "describes a folder; its file is in the fingerprint",
    "ttabench.data.files.decoded_cache": "keeps images; what decodes them is a root of its readers",
    "ttabench.data.files.generated_cache": "keeps images; its files are named by what makes them",
    "ttabench.data.fetch": "downloads; data have a fingerprint",
    "ttabench.system.environment": "names machines, versions and folders, which are stored beside a result",
    "ttabench.errors": "is what users read",
    "ttabench.system.files": "writes files whole",
    "ttabench.system.malloc": "gives memory back",
    "ttabench.models.resolve": "opens networks by name; their weights are in the identity of a result",
    "ttabench.models.head_rows": "makes weights, which are in the identity of a result",
    "ttabench.system.progress": "is what users see",
    "ttabench.cell.protocol:Protocol.__post_init__": "refuses protocols; their values are in the identity",
    "ttabench.provenance": "says what code there is",
    "ttabench.method.ranges": "refuses settings; their values are in the identity",
    "ttabench.system.checked_lines": "writes lines with checksums",
    "ttabench.measure.foreign_positions": "says afterwards which images were foreign",
    "ttabench.observe.unknown_classes": "is measured beside the accuracy",
    "ttabench.registry": "finds methods by name",
    "ttabench.observe.label_free_scores": "is measured beside the accuracy",
    "ttabench_methods.references": "is bibliography",
}
"""What code that measures enters, and what changes no accuracy → why."""


def current_code(
    method: str,
    dataset: str,
    corruption: str = "",
    arch: str = "",
    contamination: str = "",
    config: Mapping[str, Any] | None = None,
    image_files: bool = False,
) -> Code:
    """The installed code that a number depends on; :data:`NO_CODE` if the method is not installed.

    corruption     of the cell; it matters where it is one of :data:`STREAMS`.
    arch           of the cell; it matters where it is a network of the user, ``package.module:callable``, or
                   of another package.
    contamination  of its protocol; it matters where it is a dataset.
    config         its settings; of the methods that a composed method can be made of, those count that its
                   settings name. None: all count.
    image_files    of the cell: whether images of own datasets are decoded from image files.
    """
    stream = corruption if corruption in STREAMS else ""
    texts = frozenset([text for text in (config or {}).values() if isinstance(text, str)])
    return _code_of(method, dataset, stream, arch, contamination, texts, image_files)


@cache
def _code_of(
    method: str,
    dataset: str,
    stream: str,
    arch: str,
    contamination: str,
    texts: frozenset[str],
    image_files: bool,
) -> Code:
    """:func:`current_code`, found once for the many cells that differ in nothing of this."""
    foreign, _, _ = contamination.partition("(")
    drawn = any(drawn_from(name) != name for name in (dataset, foreign))
    return code_by_kind(
        method,
        _family(dataset),
        stream,
        network_module(arch),
        prefix_of(arch),
        _family(foreign) if foreign not in ("", "noise") else "",
        named_methods(method, texts),
        drawn,
        image_files,
    )


@cache
def named_methods(method: str, texts: frozenset[str]) -> tuple[str, ...]:
    """The methods that the settings of a method name; `texts` are all texts among its settings."""
    return tuple(sorted((texts & entry_points(METHODS).keys()) - {method})) if texts else ()


@cache
def code_by_kind(
    method: str,
    family: str,
    stream: str,
    network: str,
    prefix: str,
    foreign: str,
    named: tuple[str, ...],
    drawn: bool,
    image_files: bool,
) -> Code:
    known = entry_points(METHODS)
    if method not in known:
        return NO_CODE
    point = known[method]
    roots = [
        *MEASURE,
        *STREAMS.get(stream, ()),
        *READERS[family],
        *(DRAWN if drawn else ()),
        *(DECODER if image_files else ()),
        *NETWORKS,
        *_node_of(point),
    ]
    roots += (*READERS[foreign], *FOREIGN) if foreign else ()
    roots += OF_OTHERS if network or prefix else ()
    whole = strangers(method, network)
    roots += [(name, WHOLE, "") for name in sorted(whole)]
    roots += [(f"{EXTERNAL}.{'huggingface' if prefix == 'hf' else prefix}", OWN_TEXT, "")] if prefix else ()
    made = closure(roots, graph(whole), {point.module: _unnamed(point, named)})
    keep()
    texts = {shown(node): text for node, text in sorted(made.texts.items())}
    return Code(made.source, texts, made, {shown(node): of for node, of in made.branches.items()})


def _unnamed(point: Any, named: tuple[str, ...]) -> frozenset[Node]:
    """The methods that the module of a composed method refers to and its settings do not name.

    None where the settings name no method of that kind: a word such as ``source`` may mean another thing. The
    classes that classes of the module are made from always count. So does all that the module of a stranger
    refers to.
    """
    facts = module_facts(point.module)
    if facts is None or not named or point.module.partition(".")[0] not in OWN:
        return frozenset()
    links = graph(frozenset())
    made = [part for each in facts.definitions.values() for part in (each, *each.members.values())]
    referred = {
        node for part in made for dotted in part.refers
        for node in links.resolve(point.module, dotted, part.imports)
    }  # fmt: skip
    bases = {
        node for part in made for base in part.bases or () for node in links.resolve(point.module, base, {})
    }
    parts = {
        name: node for name, each in entry_points(METHODS).items() for node in _node_of(each)
        if node in referred and node[0] != point.module
    }  # fmt: skip
    if not parts.keys() & {*named}:
        return frozenset()
    return frozenset(node for name, node in parts.items() if name not in named and node not in bases)


@cache
def shown(node: Node) -> str:
    """How a definition is shown, such as ``ttabench/nn/updates.py: minimise``."""
    name, of, member = node
    if of in (OWN_TEXT, WHOLE):
        return shown_path(name)
    return f"{shown_path(name)}: {'statements' if of == BODY else of}{'.' if member else ''}{member}"


@cache
def graph(whole: frozenset[str]) -> Graph:
    return Graph(lambda name: _module(name, whole), _left_out)


def _node_of(point: Any) -> Iterator[Node]:
    """The class of a method; nothing for the methods of strangers, whose modules count whole."""
    module, _, name = point.value.partition(":") if hasattr(point, "value") else (point.module, "", "")
    if module.partition(".")[0] not in OWN:
        return
    while module_facts(module) is not None and (facts := module_facts(module)) is not None:
        if name in facts.definitions:
            yield module, name, ""
            return
        meaning = facts.meanings.get(name, "")
        if ":" not in meaning:
            return
        package, _, name = meaning.partition(":")
        module = absolute(package, package_of(module))


@cache
def strangers(method: str, network: str) -> frozenset[str]:
    """The modules of a method and of a network that are not of ttabench."""
    names = {*method_modules(method), *(network_modules(network) if network else ())}
    return frozenset(name for name in names if name.partition(".")[0] not in OWN)


def _module(name: str, whole: frozenset[str]) -> Module | None:
    """A module for the closure: of ttabench, or one that counts whole; None for others."""
    ours = name.partition(".")[0] in OWN
    facts = module_facts(name) if ours or name in whole else None
    if facts is None:
        return None
    package = package_of(name)
    imports = {}
    for alias, meaning in facts.meanings.items():
        module, colon, attribute = meaning.partition(":")
        imports[alias] = f"{absolute(module, package)}{colon}{attribute}"
    return Module(facts.definitions, imports, partial(module_hash, name), not ours)


def _left_out(name: str) -> bool:
    """Whether a module or a definition is one of :data:`OUTSIDE`."""
    module = name.partition(":")[0]
    parts = module.split(".")
    above = (".".join(parts[:count]) for count in range(2, len(parts) + 1))
    return module == "ttabench" or name in OUTSIDE or any(each in OUTSIDE for each in above)


def _family(dataset: str) -> str:
    """Which of :data:`READERS` reads or makes the images of a dataset, or of the one it is drawn from."""
    dataset = drawn_from(dataset)
    if dataset.endswith("-ccc-local"):
        return "stream of CCC"
    if dataset.endswith("-domains-local"):
        return "domains"
    if dataset.endswith("-images-local"):
        return "images"
    if dataset.endswith("-local"):
        return "own"
    return next((name for name in READERS if dataset.startswith(name)), "folders")


@cache
def shared_code(dataset: str, provider: str = SOURCE, image_files: bool = False) -> str:
    """SHA-256 (hex) of the code that source data and networks of a dataset depend on.

    provider     the module of the class that gives the source data. It counts whole: methods call its
                 members, and which of them does not matter here.
    image_files  whether it is an own dataset that is decoded from image files.
    """
    whole: set[Node] = {(module, WHOLE, "") for module in (SOURCE, provider)}
    decoder = DECODER if image_files else ()
    roots = [*sorted(whole), *READERS[_family(dataset)], *decoder, *NETWORKS]
    return closure(roots, graph(frozenset())).source


@cache
def code_from(module: str, definition: str) -> str:
    """SHA-256 (hex) of a definition of ttabench and of all that it reaches."""
    return closure([(module, definition, "")], graph(frozenset())).source
