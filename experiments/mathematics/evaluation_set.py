"""A fixed evaluation set: 500 questions of each of the 56 + 15 test modules, the same for everyone.

The questions are drawn from the generator with a seed of their own and checked against `DIGESTS`, so that two
people who evaluate on it compare on the same questions. They are not excluded from the training sets of other
seeds: a module with few different questions has some in common with any training set.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tp_transformer import mathematics
from tp_transformer.mathematics.modules import unknown

QUESTIONS = 500
SEED = 2019

Key = tuple[mathematics.Split, str]
"""A test split and one of its modules."""


def keys(modules: Sequence[str] = (), splits: Sequence[mathematics.Split] = ()) -> list[Key]:
    """Returns the test splits with their modules, restricted to names unless none are given.

    Raises:
        ValueError: a name is no test split, or no module of the chosen splits.
    """
    every: tuple[mathematics.Split, ...] = (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    for split in splits:
        if split not in every:
            raise unknown("splits", split, every)
    chosen = [split for split in every if not splits or split in splits]
    known = {split: mathematics.modules_of(split) for split in chosen}
    for name in modules:
        if not any(name in names for names in known.values()):
            raise unknown(f"modules of {' and '.join(chosen)}", name, set().union(*known.values()))
    return [(split, name) for split in chosen for name in known[split] if not modules or name in modules]


def source(chosen: Sequence[Key]) -> mathematics.Generator:
    """Returns the part of the set that belongs to some modules."""
    names, extrapolation = (
        [name for split, name in chosen if split == wanted]
        for wanted in (mathematics.INTERPOLATE, mathematics.EXTRAPOLATE)
    )
    return mathematics.Generator(0, QUESTIONS, names, extrapolation, SEED)


def digest(questions: Iterable[mathematics.Question]) -> str:
    """Returns the SHA-256 of questions and answers on alternate lines, as in the files of v1.0."""
    found = hashlib.sha256()
    for question, answer in questions:
        found.update(f"{question}\n{answer}\n".encode())
    return found.hexdigest()


def digest_of_all(digests: Mapping[Key, str]) -> str:
    """Returns the SHA-256 of a set: of a line for each module with its split, name and digest."""
    lines = [f"{split}/{name} {digests[split, name]}\n" for split, name in keys() if (split, name) in digests]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def check(digests: Mapping[Key, str], folder: Path) -> None:
    """Raises ValueError, naming all modules, if drawn questions are not those of the set."""
    wrong = [
        f"{split}/{name}"
        for (split, name), found in digests.items()
        if not found.startswith(DIGESTS[split][name])
    ]
    if wrong:
        raise ValueError(
            f"{folder}: got other questions than the set's in {', '.join(wrong)}; expected those of "
            "mathematics-dataset 1.0.1, numpy and sympy as in constraints.txt; remove the folder to draw "
            "again, or give questions with --data"
        )


DIGESTS: dict[str, dict[str, str]] = {
    "interpolate": {
        "algebra__linear_1d": "62d2a5a48c5a4786aa2a97aae6672422",
        "algebra__linear_1d_composed": "0a0b79d0f19ede978d6e10424b4c25ab",
        "algebra__linear_2d": "a27669f6f6b8775875fe6d7c23df0cd5",
        "algebra__linear_2d_composed": "31e88010a3749035e79afd7167f68624",
        "algebra__polynomial_roots": "7e0a8672e2cfbec696f6b738c28f2b6c",
        "algebra__polynomial_roots_composed": "6e8d5835d62b328867b569514184fd71",
        "algebra__sequence_next_term": "152094cdb900facfb6e84d89cf175433",
        "algebra__sequence_nth_term": "12fa19f61728ec0c6a299a62cdb8c9d4",
        "arithmetic__add_or_sub": "c65917e4dab6e515464a61c973de81fd",
        "arithmetic__add_or_sub_in_base": "e3576dbb71414d92351d0f636bbc43eb",
        "arithmetic__add_sub_multiple": "9f59f9513f1a4e84a8fb15e02137075c",
        "arithmetic__div": "61cee2d311e9db6b6f9d6e44154d5482",
        "arithmetic__mixed": "2b7f366d897d6b449bc9c06d5a4950f2",
        "arithmetic__mul": "999bd40eae8909f160c493ff2d8aa1c1",
        "arithmetic__mul_div_multiple": "ca7f93bfbff16cd2dd542146d20cef54",
        "arithmetic__nearest_integer_root": "ae0f6633eaa4a9bd587974d7f4f5a025",
        "arithmetic__simplify_surd": "edcb118e063cf8b64668f47295eb9adb",
        "calculus__differentiate": "de4bc0f7b3e0a5559be893dff98d2d35",
        "calculus__differentiate_composed": "0723d296fa2a582c6a1096ad31ea4d78",
        "comparison__closest": "4265f73dc4a511a006036d8c88c55041",
        "comparison__closest_composed": "50fa73bde924fa1c44446781acfa1d47",
        "comparison__kth_biggest": "d6b9afffddbcc899fe58a9254e4cca08",
        "comparison__kth_biggest_composed": "ac4d9bf12ca3bfa152c7fc84284e41e8",
        "comparison__pair": "a9dbf29a4d0c6c73bf6ccfca3c31593f",
        "comparison__pair_composed": "b0f0f60cdac741ea2473c0d7b66b52c6",
        "comparison__sort": "d5a2e7d9f4653cd0d5978a656753fbac",
        "comparison__sort_composed": "1de37f052b04fe2105235cbcd232b59b",
        "measurement__conversion": "e920e4170e15cdb35da8073bc06f1a7c",
        "measurement__time": "13b0404d98f5193a8c92a8d18564cefa",
        "numbers__base_conversion": "7b063cb834213d1a9a07909739c9b375",
        "numbers__div_remainder": "433a4e38338b53f1f4002321b634d346",
        "numbers__div_remainder_composed": "eb6a1771acaa9fea0a3e3662da404c17",
        "numbers__gcd": "3205aaa8dfc5defdb074d769b0bb5a61",
        "numbers__gcd_composed": "1a9e4170b8b987640087950c66a4a571",
        "numbers__is_factor": "b39060e79fb31ff8c72800a9dffc42d4",
        "numbers__is_factor_composed": "b5187df1f1bd36ac66a3f7c246469a9f",
        "numbers__is_prime": "172f14c6f72dabe97b86e343ead12047",
        "numbers__is_prime_composed": "9681d8c7d40574cc6b9bd443d7af6fc4",
        "numbers__lcm": "1bd61d8280ca18e5972272aaa503d11d",
        "numbers__lcm_composed": "951266fabfba6471db30a8bf16deba7b",
        "numbers__list_prime_factors": "de959b2656fb2fd1b74de5d94abc2ead",
        "numbers__list_prime_factors_composed": "72a0222dd20c3ecfad513d579674655f",
        "numbers__place_value": "9698dac6dbf975c91911b02295e3c009",
        "numbers__place_value_composed": "beed5f0a270c0c272f7e23c74cc3fcc6",
        "numbers__round_number": "7b0ebcff2bcbdf31d2681ce05b1cfe07",
        "numbers__round_number_composed": "eb5f9a07a42c01470b0be0eea4c0f69f",
        "polynomials__add": "80126de5fe1de8e0f46bf1a7becaa498",
        "polynomials__coefficient_named": "441ca720fab9daf5b1107817c4e87832",
        "polynomials__collect": "8dba089aa9f0b265d21bacc469beba88",
        "polynomials__compose": "54b5236e29f2fb30963b5a8ddf6569f4",
        "polynomials__evaluate": "be60b955d4ceaccc736a957fc26c7c9b",
        "polynomials__evaluate_composed": "6784d66d9a069a93922e45aff1082e52",
        "polynomials__expand": "11c80ab3872de051f3dcf73613b9c83c",
        "polynomials__simplify_power": "57714c6e8eba7a2cb8ceba6ddc775b38",
        "probability__swr_p_level_set": "5c605a84115e0f75aab1cbffee70a561",
        "probability__swr_p_sequence": "2ea068d334805e06b6cf5867311e4488",
    },
    "extrapolate": {
        "algebra__polynomial_roots_big": "b6d12566ac946bd6f6c55e1721eea898",
        "arithmetic__add_or_sub_big": "c93845afd879a77f62efb32551bc268e",
        "arithmetic__add_sub_multiple_longer": "90dafbe3b7aad6f8ffe8021fa60ccb88",
        "arithmetic__div_big": "e483e0df180cf4982b9d2009b0ebdcf1",
        "arithmetic__mixed_longer": "2556f774e366889e32b91fb4519986ff",
        "arithmetic__mul_big": "a61d07b61676f799f4cb862f8ee2f0ec",
        "arithmetic__mul_div_multiple_longer": "c6cc24c8d9bd8fffad7c830010c5e897",
        "comparison__closest_more": "9282bceb98b74cd1db13816529d3ba51",
        "comparison__kth_biggest_more": "0716c88bbee3832848b4c7aa19445526",
        "comparison__sort_more": "4c2117b559a0d24ccdbee63047c5175d",
        "measurement__conversion": "325ae9571e5896d4d9b4c78b4e7ce87b",
        "numbers__place_value_big": "05d52c2c7d9075fa1c510105a3b3d81f",
        "numbers__round_number_big": "019b186726b039db33bc97423ec8d837",
        "probability__swr_p_level_set_more_samples": "9593583e53437f3165daff6cd4d7a856",
        "probability__swr_p_sequence_more_samples": "e7d22cdafae6340e821bfdcca0828201",
    },
}
"""The first 32 digits of each module's digest.

The versions were mathematics-dataset 1.0.1, NumPy 2.5.5 and SymPy 1.14.0.
"""
DIGEST = "0c70f6bf08c4fc1e8cb69fb7bcce2e4fd1f3e3e5daa37dd5a3304f1ccc82fcd1"
"""`digest_of_all` of the whole set."""
