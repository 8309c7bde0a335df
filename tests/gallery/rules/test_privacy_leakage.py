"""Personal data and secrets are found with their checksums, and only they."""

from __future__ import annotations

from typing import Any

import pytest

from rm_gallery.core.utils.errors import ConfigError
from rm_gallery.gallery.rm.format.privacy import PrivacyLeakageReward, find_personal_data
from tests.gallery.rules.support import result_of, sample_of, score_of

FOUND = [
    ("write to zhang.san@qq.com。", "email", "zhang.san@qq.com"),
    ("电话13812345678吧", "phone", "13812345678"),
    ("+86 138 1234 5678", "phone", "+86 138 1234 5678"),
    ("call 415-555-2671 now", "phone", "415-555-2671"),
    ("(415) 555-2671", "phone", "(415) 555-2671"),
    ("+44 20 7946 0958", "phone", "+44 20 7946 0958"),
    ("座机 010-62345678", "phone", "010-62345678"),
    ("4111 1111 1111 1111", "card", "4111 1111 1111 1111"),
    ("4111-1111-1111-1111, 12/27", "card", "4111-1111-1111-1111"),
    ("378282246310005", "card", "378282246310005"),
    ("身份证11010519491231002X。", "cn_id", "11010519491231002X"),
    ("078-05-1120", "us_ssn", "078-05-1120"),
    ("GB82 WEST 1234 5698 7654 32", "iban", "GB82 WEST 1234 5698 7654 32"),
    ("DE89370400440532013000", "iban", "DE89370400440532013000"),
    ("host 8.8.8.8.", "ipv4", "8.8.8.8"),
    ("172.32.0.1", "ipv4", "172.32.0.1"),
    ("172.15.255.1", "ipv4", "172.15.255.1"),
    ("key sk-proj-a1b2c3d4e5f6a7b8c9d0e1", "api_key", "sk-proj-a1b2c3d4e5f6a7b8c9d0e1"),
    ("AKIAIOSFODNN7EXAMPLE", "api_key", "AKIAIOSFODNN7EXAMPLE"),
    ("ghp_" + "a1" * 18, "api_key", "ghp_" + "a1" * 18),
    ("host 2001:4860:4860::8888.", "ipv6", "2001:4860:4860::8888"),
    ("2606:4700:4700:0:0:0:0:1111", "ipv6", "2606:4700:4700:0:0:0:0:1111"),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\n", "private_key", "-----BEGIN PGP PRIVATE KEY BLOCK-----"),
    ("-----BEGIN RSA PRIVATE KEY-----\nMII", "private_key", "-----BEGIN RSA PRIVATE KEY-----"),
]
CLEAN = [
    pytest.param("172.16.0.1 and 172.31.255.255", id="private_172_16_to_31"),
    pytest.param("10.0.0.1, 192.168.1.1, 127.0.0.1, 0.0.0.0", id="private_networks"),
    pytest.param("999.1.1.1", id="no_address"),
    pytest.param("release v1.2.3.4 and 1.2.3.4.5", id="versions"),
    pytest.param("4111 1111 1111 1112", id="wrong_luhn"),
    pytest.param("110105194912310021", id="wrong_identity_checksum"),
    pytest.param("11010519491331002X", id="month_13"),
    pytest.param("GB82 WEST 1234 5698 7654 33", id="wrong_iban_checksum"),
    pytest.param("someone@example.com, a@b.test", id="reserved_domains"),
    pytest.param("1234567890", id="ten_digits_alone"),
    pytest.param("2024-01-15 12:30:00", id="date"),
    pytest.param("3.14159265358979", id="decimals"),
    pytest.param("ISBN 978-3-16-148410-0", id="isbn"),
    pytest.param("sk-learn-pipelines-and-model-selection", id="hyphenated_words"),
    pytest.param("0000 0000 0000 0000", id="zeros"),
    pytest.param("订单12345678901234567", id="order_number"),
    pytest.param("a@b", id="no_domain"),
    pytest.param("fe80::1, ::1, 2001:db8::1, fd00::1", id="private_and_documentation_ipv6"),
    pytest.param("std::vector, a::b, 12:34:56, aa:bb:cc:dd:ee:ff, 2001:4860", id="colons_that_are_no_address"),
    pytest.param("version 1.2.3.4", id="version"),
    pytest.param("-----BEGIN PGP PUBLIC KEY BLOCK-----", id="public_key"),
    pytest.param("202-555-0147, 1-800-555-0199", id="numbers_kept_for_fiction"),
    pytest.param("15000000000, $13812345678, 13812345678 bytes, 13812345678 * 2", id="amounts_are_no_phones"),
    pytest.param("+12 34 56 78", id="too_short_for_its_country"),
    pytest.param("", id="empty"),
]


@pytest.mark.parametrize(("text", "kind", "span"), FOUND)
def test_found(text: str, kind: str, span: str) -> None:
    assert [(f.kind, text[f.start : f.end]) for f in find_personal_data(text)] == [(kind, span)]
    assert score_of(PrivacyLeakageReward(), text) == -0.5


@pytest.mark.parametrize("text", CLEAN)
def test_clean(text: str) -> None:
    assert find_personal_data(text) == []
    assert score_of(PrivacyLeakageReward(), text) == 0.0


def test_penalty_is_bounded() -> None:
    text = "\r\n".join(f"user{i}@mail.cn" for i in range(50))
    assert score_of(PrivacyLeakageReward(), text) == -1.0
    assert score_of(PrivacyLeakageReward(penalty_per_leak=-0.01), text) == pytest.approx(-0.5)
    assert score_of(PrivacyLeakageReward(max_penalty=-0.7), text) == -0.7


def test_report_holds_places_and_no_data() -> None:
    text = "mail zhang@qq.com or 8.8.8.8"
    result = result_of(PrivacyLeakageReward(), sample_of(text))
    assert result.extra_data == {
        "counts": {"email": 1, "ipv4": 1},
        "spans": [{"kind": "email", "start": 5, "end": 17}, {"kind": "ipv4", "start": 21, "end": 28}],
    }
    assert "zhang" not in result.model_dump_json()


def test_what_the_user_said_is_no_leak() -> None:
    reward = PrivacyLeakageReward(allow_from_user=True)
    assert score_of(reward, "Sent to zhang@qq.com.", prompt="Write to zhang@qq.com") == 0.0
    assert score_of(reward, "Sent to li@qq.com.", prompt="Write to zhang@qq.com") == -0.5
    assert score_of(PrivacyLeakageReward(), "Sent to zhang@qq.com.", prompt="Write to zhang@qq.com") == -0.5


def test_kinds() -> None:
    assert score_of(PrivacyLeakageReward(kinds=("ipv4",)), "zhang@qq.com") == 0.0


@pytest.mark.parametrize(
    "wrong", [{"penalty_per_leak": 0.5}, {"max_penalty": -2}, {"kinds": ["passport"]}, {"kinds": []}]
)
def test_bad_settings(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        PrivacyLeakageReward(**wrong)
