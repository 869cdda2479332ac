"""Words that say how hard a wish is, in fifteen languages: data, not code.

A cue is a whole word or, where it is longer than six letters, the first six of it: that many
carry the stem through most endings. Languages that are written without spaces have cues that are
looked for anywhere. A family counts once, however many of its cues are there, but for
`limits` and `reason`: of those every word counts.
"""

# ruff: noqa: RUF001 - words of other alphabets

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

STEM: Final = 6  # letters

# English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Turkish, Arabic,
# Hindi, in this order; one language a line where it fits.
_WORDS: Final = {
    "proof": """prove proves proof proofs derive lemma falsify
        beweise beweis herleiten démontre démontrer prouve demuestra demostrar deduce dimostra
        dimostrazione demonstre prove bewijs udowodnij udowodnić докажи доказать доказательство
        kanıtla kanıtın أثبت برهن البرهان सिद्ध""",
    "design": """design architect architecture
        entwirf entwurf architektur konzipiere conçois conception diseña diseñar arquitectura
        progetta progettare projete arquitetura ontwerp architectuur zaprojektuj architektura
        спроектируй архитектура tasarla mimari صمم تصميم""",
    "analysis": """analyse analyze analysis evaluate critically critique assess diagnose
        investigate reconcile evaluation
        analysiere bewerte beurteile évalue évaluer examine analiza analizar evalúa
        analizza valuta analise avalie analyseer beoordeel przeanalizuj oceń проанализируй оцени
        исследуй analiz değerlendir حلّل حلل قيّم विश्लेषण मूल्यांकन""",
    "argument": """justify justification weigh trade-off trade-offs tradeoff tradeoffs evidence
        conclude conclusion implications hypothesis synthesis argue counterarguments reasoning
        recommend ambiguous discuss interact
        begründe begründete abwägen wäge gegeneinander justifie compromis hypothèses objections
        synthèse preuves justifica discute evidencia supuestos giustifica compromessi
        justifique compromissos fundamentada evidências onderbouw afwegingen uzasadnij uzasadnienie
        обоснуй обоснованный компромиссы gerekçeli مبررة علل तर्क""",
    "depth": """generalise generalize asymptotic invariants invariant infinitely rigorous
        exhaustive interleaving bounds assumptions consistent
        verallgemeinere widersprechen généralise généraliser generaliza asintótico generalizza
        generalize veralgemeniseer uogólnij обобщи genelle عمّم""",
    "systems": """concurrency concurrent deadlock deadlocks atomic thread-safe distributed consensus
        replication compiler eviction failover fault-tolerant microservices multi-tenancy tenancy
        downtime rollback scalability refactor optimise optimize leaks latency
        threadsicher verklemmen ausfallsicherheit microservices cohérent partition optimiser
        optimise concurrencia tolerancia minimización tolleranza tolerância consistência
        microsserviços storingen распределённую репликацией сбоев консенсуса""",
    "strategy": """strategy curriculum scenario scenarios milestones risks go-to-market roadmap
        proposal feasibility
        strategie szenarien sanierungsplan stratégie scénario risques stratégique estrategia riesgos
        indicadores strategia politiche estratégia riscos scenario's strategia scenariusze ryzyka
        стратегию сценарии senaryoyu strateji سيناريوهات استراتيجية नीतियों रणनीति""",
    "theory": """theorem irrational integral integer primes eigenvalue polynomial induction
        continuous probability expected cyclic
        primzahlen funktionen dénombrable rationnels cíclico subgrupos esperado serie indução primos
        priemgetallen dwudzielny cykli иррационально asal asalların نسبي वर्गों""",
    "make": """write draft create implement generate build compose rewrite add fix
        schreibe schreib erstelle verfasse formuliere stelle écris rédige crée propose escribe
        redacta crea escriba scrivi crea escreva redija crie schrijf maak napisz utwórz напиши
        составь yaz oluştur اكتب أنشئ लिखिए लिखो बनाइए""",
    "explain": """explain why difference differences compare summarise summarize describe pros cons
        versus outline
        erkläre erklär unterschied vergleiche fasse beschreibe warum explique pourquoi différence
        compare résume décris explica diferencia compara resume ventajas describe spiega differenza
        confronta riassumi explique diferença resuma vergelijk uitleg leg waarom wyjaśnij różnicę
        porównaj объясни отличается сравни опиши açıkla karşılaştır farkı اشرح الفرق قارن لخص
        समझाइए अंतर तुलना""",
    "code": """function script python javascript typescript rust sql regex regular query bug error
        exception tests pytest api bash java class
        funktion skript fonction requête función consulta funzione função functie funkcję функцию
        fonksiyon دالة""",
    "worked": """solve calculate compute calculation example examples plan suggest schedule steps
        tasks list extract fill
        rechenweg beispiel berechne löse trainingsplan calcule exemple étapes pasos ejemplo calcula
        esempio calcola exemplo voorbeeld bereken przykładzie oblicz пример реши вычисли örnekle
        hesapla مثال احسب उदाहरण""",
    "limits": """must without keep mention avoid exactly including below every each never only both
        all any no none unless except until while most least nothing allowed strict full
        ohne mindestens höchstens jede alle nie nur kein keine sans chaque maximum tous jamais sin
        cada todos nunca solo senza entro tutti mai sem todas zonder elke alleen każdy wszystkie bez
        без каждого каждый все только olmadan her tüm كل دون हर बिना""",
    "reason": """if would could should might whether because cause causes caused estimate argument
        convince realistic order sequence options tell know missing either case cases breaks
        falls wenn würde könnte sollte ursache ursachen weil lassen si serait pourrait cause vérifie
        établis sería podría causa causas porque inevitables sarebbe potrebbe seria poderia als zou
        kan gdyby mógłby если может почему причины eğer olabilir إذا لأن यदि क्योंकि""",
    "easy": """translate translation spelling synonym antonym plural capital title define definition
        thanks hello hi joke abbreviation convert upper lower correct tense sentiment spam
        positive negative
        übersetze rechtschreibung korrigiere hauptstadt gegenteil nenne guten danke traduis corrige
        synonyme bonjour merci traduce traducir positivo dime hola traduci dice traduza plural
        vertaal spelling verbeter hoeveel przetłumacz nazywa переведи антоним синоним сколько
        başkenti merhaba ترجم عاصمة राष्ट्रीय नमस्ते""",
}

# Said in more than one word.
_PHRASES: Final = {
    "proof": ("show that", "zeige, dass", "montre que", "muestra que", "mostra che", "mostre que"),
    "worked": ("step by step", "schritt für schritt", "étape par étape", "paso a paso"),
    "depth": ("root cause", "every step", "jeden schritt", "chaque étape", "cada paso"),
}

# Chinese, Japanese, Korean.
_ANYWHERE: Final = {
    "proof": "证明 推导 証明 導出 증명",
    "design": "设计 架构 設計 アーキテクチャ 설계 아키텍처",
    "analysis": "分析 评估 評価 検討 분석 평가",
    "argument": "权衡 论证 优缺点 根拠 トレードオフ 論じ 反論 提言 정당화 절충 논증",
    "depth": "推广 一般化 일반화",
    "systems": "并发 死锁 一致性 可用性 复杂度 整合性 可用性 並行 분산 일관성",
    "strategy": "策略 方案 战略 戦略 対策 전략",
    "theory": "函数在 区间 素数 소수",
    "make": "写一 帮我写 实现 書いて 作成 まとめて 작성",
    "explain": "解释 说明 比较 区别 説明 比較 違い 설명 비교 차이",
    "code": "代码 函数 関数 コード 함수 파이썬",
    "worked": "例子 步骤 举一 例を 手順 예를",
    "limits": "必须 不要 每个 所有 只 必ず すべて だけ 반드시 모든",
    "reason": "如果 是否 推理 原因 使得 場合 なら 原因 仮説 たうえで 만약 이유",
    "easy": "翻译 你好 谢谢 訳して こんにちは ありがとう 번역 수도는",
}


def _by_cue() -> Mapping[str, str]:
    found: dict[str, str] = {}
    for family, words in _WORDS.items():
        for word in words.split():
            found.setdefault(word[:STEM], family)
    return MappingProxyType(found)


BY_CUE: Final = _by_cue()
CUES: Final = frozenset(BY_CUE)


def _by_first() -> Mapping[str, tuple[tuple[str, str], ...]]:
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for family, phrases in _PHRASES.items():
        for phrase in phrases:
            first = phrase.split()[0].strip(",")
            found[first] = (*found.get(first, ()), (phrase, family))
    return MappingProxyType(found)


PHRASES: Final = _by_first()  # by their first word
FIRSTS: Final = frozenset(PHRASES)
ANYWHERE: Final = tuple((cue, family) for family, cues in _ANYWHERE.items() for cue in cues.split())
