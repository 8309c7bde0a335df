"""Which language a text is in, told by its script and its function words: no model, no download, always the same."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple

from rm_gallery.core.utils.errors import ConfigError, MissingExtra

__all__ = ["TokenizerName", "is_unspaced", "tokenizer", "words"]


FUNCTION_WORDS: dict[str, str] = {
    "en": "the of and to in a is that it for was on are as with his they at be this from i have or by one had not but what "
    "all were when we there can an your which their if do will each how them then she many some so these would other into "
    "has more her two like him could than been who its now my made over did only you he our me about also because "
    "should very just any most after before where why does",
    "es": "de la que el en y a los se del las un por con no una su para es al lo como más pero sus le ya o este sí porque "
    "esta entre cuando muy sin sobre también me hasta hay donde quien desde todo nos durante todos uno les ni contra otros "
    "ese eso ante ellos e esto mí antes algunos qué unos yo otro otras otra él tanto esa estos mucho son fue ser tiene "
    "puede pueden está están",
    "pt": "de a o que e do da em um para é com não uma os no se na por mais as dos como mas foi ao ele das tem à seu sua ou "
    "ser quando muito há nos já está eu também só pelo pela até isso ela entre era depois sem mesmo aos ter seus quem nas "
    "me esse eles estão você tinha foram essa num nem suas meu às minha têm numa pelos elas qual nós lhe são",
    "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont cette avec ont son "
    "mais comme ou si leur y dont aux d l c qu s n j m ses été être nous vous ils elle elles je tu on tout sa aussi entre "
    "fait sans très où même ces mon ma peut faire deux était",
    "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden aus er hat dass "
    "sie nach wird bei einer um am sind noch wie einem über einen so zum war haben nur oder aber vor zur bis mehr durch man "
    "sein wurde sei ich wir ihr kann wenn unter keine diese dieser dieses können mich mir du sehr hier schon",
    "it": "di e il la che in a per un è del della sono le con non una si da i come al dei ha nel alla più o gli anche delle lo "
    "ma se questo questa dal nella essere suo sua ci tra stato ed quando tutti loro molto alle era sul dalla quello cui mi "
    "ai dello così perché degli io noi hanno fra prima anni dopo senza ogni due",
    "nl": "de van het een en in is dat op te zijn met voor die niet aan er om ook als dan maar bij of uit nog naar heeft hebben "
    "worden door over wordt ze hij deze geen kan meer werd zich tot je ik wat was we zo wel hun dit mijn zou tegen onder "
    "onze na alle moet veel omdat",
    "sv": "och i att det som en på är av för med till den har de inte om ett han men var jag sig från vi så kan när år under "
    "också efter eller nu sin där vid mot ska skulle kommer ut får finns vara hade alla andra mycket än här då sedan över "
    "bara in blir upp även vad man mig detta",
    "da": "og i at det er en til på de som der med for af ikke den har et jeg var han men sig om vi kan så fra skal ved efter "
    "hun nu være over da også eller hvad bliver op ud havde hvor blev mod når sin mig kun meget man denne uden mere disse "
    "end alle dem noget",
    "no": "og i det er på til som en å for at av med ikke den har de jeg var et han om men vi seg så fra kan skal ved etter hun "
    "nå være over da også eller hva blir opp ut hadde hvor ble mot når sin meg bare mye man denne uten mer disse enn alle "
    "dem noe fordi",
    "fi": "ja on ei että oli se hän mutta ovat kun niin myös joka mukaan jos olla vain kuin sen ole tai hänen siitä kaikki mitä "
    "nyt sitä tämä jo voi mikä sekä minä me he ne vielä jälkeen ennen kanssa koska tämän ollut jotka olisi ole mitään "
    "hyvin eivät siis sitten tässä oikeus",
    "pl": "w i na nie się z do to że jest o jak za od po ale przez co są tak dla go tym już czy jego być jej oraz był który tego "
    "może ich tylko także ma które jako więc było przed kiedy nas bardzo pod bez jeszcze lub też ja my przy by ze a mi pan "
    "każdy można która",
    "cs": "a se v na je že to s z do o i jako by ve pro jsou k od si za ale po podle tak jeho které který která byl bylo již při "
    "jen také co až ze nebo má když před být jsem této mezi není může jak však pokud jejich ještě bude kde proto",
    "ro": "și de în a la cu nu o pe care din se că un este mai pentru sa să ca au fost prin sau lui dar ce al după le ale fi sunt "
    "dintre despre ei am ar te cel cea lor această acest când fără foarte toate dacă decât ale ori îi ți",
    "hu": "a az és hogy nem is egy ez meg van volt de csak azt még el már mint ha ki kell lesz vagy be mert ezt aki ami minden "
    "lehet nagyon lett után én ő mi ti azonban olyan majd két között pedig ezek illetve szerint való saját",
    "tr": "ve bir bu da de için ile çok olarak daha o gibi olan var ne en kadar sonra ben ama değil mi her ki ya şey onun olduğu "
    "ise diye bile nasıl veya göre kendi tarafından bütün ancak yok şu biz siz olur oldu eden önce hem içinde",
    "vi": "và của là có không được cho một trong những với người các khi để này đã ra từ đó ở đến về như làm vào tôi cũng nhiều "
    "nhưng thì phải lại sẽ năm trên hay bạn nếu tại vì rất mọi chúng ta anh cô ông họ việc còn sau đều do theo điều bị nên",
    "id": "yang dan di itu dengan untuk tidak ini dari dalam akan pada juga saya ke karena bisa ada mereka adalah kita kamu dia "
    "lebih sudah atau saat oleh menjadi orang seperti telah bahwa tersebut dapat kami sebagai banyak harus anda semua "
    "secara hanya sangat agar namun maka setiap",
    "sw": "na ya wa kwa ni katika za la kuwa cha hii kama hiyo hilo yake huo au pia watu sana lakini ili wake baada ambao ambayo "
    "mtu moja kila yao kutoka vya hayo alikuwa wote mimi wewe yeye sisi hapa tu bila hata ama basi bado kabla siku kwamba "
    "hivyo zaidi ndani",
    "ca": "de la i a que el en les els un per amb del una no es són va més al com ha però dels o seva seu aquest aquesta també "
    "són ser fins entre molt quan hi sobre tot ens sense perquè on aquests està tots cada ja",
    "ru": "и в не на я что он с как а то это по к но она из у за так о же от вы бы мы для его до все ты или если уже только ее "
    "мне было вот быть когда даже нет был них их они чтобы есть этот может также при который которые",
    "uk": "і в не на я що він з як а то це по до але та у за так про же від ви б ми для його все ти або якщо вже тільки її мені "
    "було бути коли навіть ні був них їх вони щоб є цей може також при який які й де дуже",
    "bg": "и в не на аз че той с как а то това по до но тя от за така със ще вие бих ние за му все ти или ако вече само ѝ мен "
    "беше бъде когато дори няма бил тях им те да е този може също при който които са се си го във много",
    "ar": "في من على أن إلى عن مع هذا هذه التي الذي ما لا كان كانت هو هي قد أو كل لم ذلك بعد بين عند أي ثم إن كما يكون حيث حتى "
    "لكن منذ غير وقد ولا وهو وهي أكثر جدا",
    "fa": "در و به از که این را با است برای آن یک خود تا کرد بر هم نیز می شود ها شد های اما یا دارد بود کند او ما شما من هر باید "
    "اگر همه چه وی پس بسیار نمی توان دارند هستند",
    "ur": "کے میں کی ہے اور سے کا کو اس نے پر یہ کہ ہیں جو بھی ایک وہ تھا لیے ہو نہیں کر گیا ان تو ہی ساتھ بعد کیا تھی اپنے تھے "
    "ہم آپ لئے جا رہا گئی ہوئے یا بہت والے کچھ",
    "hi": "के में की है और से का को पर यह कि हैं जो भी एक वह था लिए हो नहीं कर गया इस ने तो ही साथ बाद क्या थी अपने थे हम आप जा रहा गई हुए या "
    "बहुत वाले कुछ करने किया होता",
    "mr": "आणि आहे या हे ते की मध्ये नाही तर व होते हा ही असे आहेत म्हणून एक त्यांच्या त्या केले झाली होता होती मी आपण तो ती पण किंवा साठी "
    "करून केला असून येथे आम्ही काही सर्व जर",
    "ne": "छ र को मा हो यो का पनि ले लाई भएको छन् गर्न तथा हुन्छ एक गरेको थियो गर्ने भने हुने त्यो तर म हामी उनी गरी हुन् बाट सँग नै के अनि यस "
    "सबै धेरै छैन यी",
}

MARKS: dict[str, str] = {
    "es": "ñ¿¡",
    "pt": "ãõ",
    "fr": "œùûêë",
    "de": "ß",
    "it": "ìò",
    "sv": "åäö",
    "da": "æøå",
    "no": "æøå",
    "fi": "äö",
    "pl": "łąęśżźńć",
    "cs": "řěůýžčš",
    "ro": "șțşţăâî",
    "hu": "őűöüé",
    "tr": "ğışç",
    "vi": "ơưđạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
    "ca": "·ïç",
    "ru": "ыэё",
    "uk": "іїєґ",
    "bg": "ъщ",
    "fa": "پچژگیک",
    "ur": "ٹڈڑںےہ",
    "ar": "يكةىإأ",
    "mr": "ळ",
}


TokenizerName = Literal["words", "whitespace", "chars", "squad", "jieba"]
"""words: runs of letters and digits, each character of an unspaced script by itself; whitespace: what spaces separate;
chars: every character that is no space; squad: SQuAD's normalisation, without articles and punctuation; jieba: Chinese
words, needs the extra zh. All but squad's articles are of any language, and case never counts."""

_ASCII_WORDS = bytes(
    ord(chr(code).lower()) if chr(code).isalnum() and code < 128 else 32 for code in range(256)
)  # lower case and separators in one pass of C
_UNSPACED = (
    (0x3005, 0x3007),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def is_unspaced(code: int) -> bool:
    """Whether a character's script puts no spaces between words: Chinese, Japanese, Thai, Lao, Khmer, Burmese."""
    return any(low <= code <= high for low, high in _UNSPACED)


class _Words(dict[int, str]):
    """Character by character: kept, set apart, or a separator; learned as characters turn up."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character)[0] not in "LNM":
            found = " "
        else:
            found = f" {character} " if is_unspaced(code) else character
        self[code] = found
        return found


_WORDS = _Words()


def words(text: str) -> list[str]:
    """Runs of letters and digits in lower case, and each Chinese, Japanese or Thai character; other signs separate.

    Full-width and other compatibility forms count as the plain ones (NFKC).
    """
    if text.isascii():
        return text.encode("ascii").translate(_ASCII_WORDS).decode("ascii").split()
    return unicodedata.normalize("NFKC", text).casefold().translate(_WORDS).split()


def _whitespace(text: str) -> list[str]:
    return text.casefold().split()


def _chars(text: str) -> list[str]:
    return list("".join(text.casefold().split()))


def _squad(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _jieba(text: str) -> list[str]:
    try:
        import jieba
    except ImportError as error:
        raise MissingExtra("jieba", "zh", "The tokenizer 'jieba'") from error
    jieba.setLogLevel(60)
    return [token for token in jieba.lcut(text.casefold()) if any(map(str.isalnum, token))]


_TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "words": words,
    "whitespace": _whitespace,
    "chars": _chars,
    "squad": _squad,
    "jieba": _jieba,
}


def tokenizer(name: str) -> Callable[[str], list[str]]:
    """The tokenizer of this name; ConfigError lists the names there are."""
    found = _TOKENIZERS.get(name)
    if found is None:
        raise ConfigError(f"There is no tokenizer '{name}'; choose one of {', '.join(_TOKENIZERS)}.")
    return found


UNKNOWN = "und"
"""ISO 639's code for a language that could not be told."""

_LATIN = (
    "en",
    "es",
    "pt",
    "fr",
    "de",
    "it",
    "nl",
    "sv",
    "da",
    "no",
    "fi",
    "pl",
    "cs",
    "ro",
    "hu",
    "tr",
    "vi",
    "id",
    "sw",
    "ca",
)
_SCRIPTS: dict[str, tuple[tuple[tuple[int, int], ...], tuple[str, ...]]] = {
    "latin": (((0x41, 0x24F), (0x1E00, 0x1EFF), (0xFF21, 0xFF5A)), _LATIN),
    "han": (((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)), ("zh",)),
    "kana": (((0x3041, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F)), ("ja",)),
    "hangul": (((0x1100, 0x11FF), (0x3131, 0x318E), (0xAC00, 0xD7A3)), ("ko",)),
    "cyrillic": (((0x400, 0x52F),), ("ru", "uk", "bg")),
    "arabic": (((0x620, 0x77F), (0xFB50, 0xFEFC)), ("ar", "fa", "ur")),
    "devanagari": (((0x900, 0x97F),), ("hi", "mr", "ne")),
    "bengali": (((0x980, 0x9FF),), ("bn",)),
    "gurmukhi": (((0xA00, 0xA7F),), ("pa",)),
    "gujarati": (((0xA80, 0xAFF),), ("gu",)),
    "tamil": (((0xB80, 0xBFF),), ("ta",)),
    "telugu": (((0xC00, 0xC7F),), ("te",)),
    "kannada": (((0xC80, 0xCFF),), ("kn",)),
    "malayalam": (((0xD00, 0xD7F),), ("ml",)),
    "thai": (((0xE00, 0xE7F),), ("th",)),
    "greek": (((0x370, 0x3FF), (0x1F00, 0x1FFF)), ("el",)),
    "hebrew": (((0x5D0, 0x5F2),), ("he",)),
    "georgian": (((0x10A0, 0x10FF),), ("ka",)),
    "armenian": (((0x531, 0x587),), ("hy",)),
}
_WORD_END = re.compile(r"[\s\d.,;:!?\"'’“”«»()\[\]{}<>*_/|\\…،؛؟۔।—–=+~`#-]+")
_GENITIVE = re.compile(r"['’]s\b")
_ALIASES = {"iw": "he", "nb": "no", "nn": "no", "in": "id"}
_JAPANESE_SHARE = 0.05
_DENSE = {"han": 3, "kana": 3, "hangul": 2}
"""Letters of other scripts that say as much as one of these."""
_MARK_WEIGHT = 0.5
_LETTER_WEIGHT = 0.3
"""A single letter may be a name, a unit or a choice as well."""
_SHORT_HAN = 16
_CHINESE_ONLY = frozenset("的了是我你您他她们这那哪吗呢吧啊不在有没和就都很为会说个什么请还把被让过着")
_SHORT_WORDS = 3
"""Letters up to which a text in a shared script may be in any of its languages."""
_NEAR = 0.85
_ENOUGH_WORDS = 20
_LEAST_SHARE = 0.05


def known_language(code: str) -> str | None:
    """The code as used here (zh-cn is zh), None for a language that cannot be told."""
    base = code.strip().lower().replace("_", "-").partition("-")[0]
    base = _ALIASES.get(base, base)
    return base if any(base in languages for _, languages in _SCRIPTS.values()) else None


def candidate_languages(text: str) -> frozenset[str]:
    """ISO 639-1 codes of the languages the text may be in: one for a text of some length, several when it is too short.

    Empty for a text without letters; `und` for a text of twenty words or more that fits no language known here. Where
    scripts are mixed, the one with the most letters counts.
    """
    counts = dict.fromkeys(_SCRIPTS, 0)
    for character, count in Counter(text).items():
        script = _script_of(character) if character.isalpha() else None
        if script is not None:
            counts[script] += count
    if not any(counts.values()):
        return frozenset()
    eastern = counts["han"] + counts["kana"]
    # a Japanese text is largely Chinese characters
    counts["han"], counts["kana"] = (0, eastern) if counts["kana"] > _JAPANESE_SHARE * eastern else (eastern, 0)
    main = max(counts, key=lambda script: counts[script] * _DENSE.get(script, 1))
    if main == "han" and eastern <= _SHORT_HAN and not _CHINESE_ONLY.intersection(text):
        return frozenset({"zh", "ja"})  # a name or a title in Chinese characters is both
    languages = _SCRIPTS[main][1]
    return frozenset(languages) if len(languages) == 1 else _by_words(text.lower(), languages)


@lru_cache(maxsize=4096)
def _script_of(character: str) -> str | None:
    code = ord(character)
    return next((name for name, (ranges, _) in _SCRIPTS.items() if any(a <= code <= b for a, b in ranges)), None)


def _by_words(text: str, languages: tuple[str, ...]) -> frozenset[str]:
    tokens = [token for token in _WORD_END.split(_GENITIVE.sub(" ", text)) if token]
    table = _word_weights(languages)
    scores: dict[str, float] = dict.fromkeys(languages, 0.0)
    for token, count in Counter(tokens).items():
        for language, weight in table.get(token, ()):
            scores[language] += (weight if len(token) > 1 else _LETTER_WEIGHT * weight) * count
    for character, count in Counter(text).items():
        for language, weight in _mark_weights(languages).get(character, ()):
            scores[language] += _MARK_WEIGHT * weight * count
    best = max(scores.values())
    if sum(map(len, tokens)) <= _SHORT_WORDS and not any(c in _mark_weights(languages) for c in text):
        return frozenset(languages)  # "hi", "no", "OK"
    if len(tokens) >= _ENOUGH_WORDS and best < _LEAST_SHARE * len(tokens):
        return frozenset({UNKNOWN})
    return frozenset(language for language, score in scores.items() if score >= _NEAR * best)


@lru_cache(maxsize=8)
def _word_weights(languages: tuple[str, ...]) -> dict[str, list[tuple[str, float]]]:
    return _weights({language: FUNCTION_WORDS[language].split() for language in languages})


@lru_cache(maxsize=8)
def _mark_weights(languages: tuple[str, ...]) -> dict[str, list[tuple[str, float]]]:
    return _weights({language: list(MARKS.get(language, "")) for language in languages})


def _weights(entries: dict[str, list[str]]) -> dict[str, list[tuple[str, float]]]:
    """By entry, the languages that have it; what several share counts less for each."""
    owners: dict[str, list[str]] = {}
    for language, found in entries.items():
        for entry in set(found):
            owners.setdefault(entry, []).append(language)
    return {entry: [(language, 1 / len(named)) for language in named] for entry, named in owners.items()}


_EASTERN = frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "IDEOGRAPHIC"})


class LanguageShares(NamedTuple):
    """Share of a text's words per language, the number of words, and the languages the largest part may be in."""

    shares: dict[str, float]
    words: int
    main: frozenset[str]


@lru_cache(maxsize=8192)
def _script(character: str) -> str:
    script = unicodedata.name(character, "UNKNOWN").split(" ", 1)[0]
    return "CJK" if script in _EASTERN else script


def language_shares(text: str) -> LanguageShares:
    """The share of words in each language; each Chinese or Japanese character is a word, numbers are none.

    The words of one script are all in one language, as `candidate_languages` tells them; where it leaves a choice, each
    candidate has the whole share, so that shares may sum to more than 1. Words of no known language are `und`.
    """
    by_script: dict[str, list[str]] = {}
    for word in words(text):
        letter = next((c for c in word if c.isalpha()), None)
        if letter is not None:
            by_script.setdefault(_script(letter), []).append(word)
    total = sum(map(len, by_script.values()))
    shares: dict[str, float] = {}
    main: frozenset[str] = frozenset()
    for found in sorted(by_script.values(), key=len, reverse=True):
        languages = candidate_languages(" ".join(found)) or frozenset({UNKNOWN})
        main = main or languages
        for language in sorted(languages):
            shares[language] = shares.get(language, 0.0) + len(found) / total
    return LanguageShares(shares, total, main)
