from penstock.study.sizes import doublings, powers_of_two


def test_sizes_double_up_to_the_most() -> None:
    assert powers_of_two(1) == [1] and powers_of_two(8) == [1, 2, 4, 8] and powers_of_two(12) == [1, 2, 4, 8]
    assert doublings(1) == [1] and doublings(8) == [1, 2, 4, 8] and doublings(12) == [1, 2, 4, 8, 12]


def test_nothing_has_no_sizes() -> None:
    assert powers_of_two(0) == doublings(0) == powers_of_two(-3) == doublings(-3) == []
