"""Words that say what is wished for, in fifteen languages: data, not code.

A cue is a whole word or, where it ends in a star, the beginning of one: that carries it through
the endings of a language. Cues of Chinese, Japanese and Korean are looked for anywhere in a
sentence. Each cue belongs to one family; `complexity` knows what a family is worth.
"""

# ruff: noqa: RUF001 - words of other alphabets

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD: Final = 4  # letters by which the cues of a word are found; shorter cues are whole words

# English, German, French, Spanish, Italian, Portuguese, Dutch, Polish, Russian, Turkish, Arabic,
# Hindi, in this order; a language begins a line where it fits.
_WORDS: Final = {
    "proof": """
        prove proves proving disprove* proof proofs derive derives derivation lemma falsif*
        refut* counterexample* contradiction corollary reduce construct beweis* bewies* herleit*
        hergeleitet ableiten widerleg* gegenbeispiel* démontr* prouve* réfut* déduis déduire
        contre-exemple* démonstration demuestr* demostr* deduce deducir contraejemplo* pruebe
        dimostra* confuta* deriva dedurre controesempio* demonstr* deduza* deduzir contraexemplo*
        bewijs* weerleg* afleid* udowodn* wyprowad* obal obalić kontrprzykład* докаж* доказ*
        вывед* опроверг* контрпример* kanıtla* ispatla* türet* çürüt* أثبت* اثبت* برهن* البرهان
        استنتج* فند* सिद्ध प्रमाणित खंडन
    """,
    "design": """
        design designs sketch redesign architect architecture* devise invent entwirf entwerfe*
        entwurf architektur* konzipier* entwickle konzept conçoi* concevoir concevez conception
        élabore* diseñ* arquitectura* elabora elabore progetta* architettura* projete* projetar
        arquitetura* ontwerp* ontwikkel* architectuur zaprojekt* zaplanuj opracuj спроектир*
        разработай архитектур* придумай tasarla* mimari* geliştir صمم* صمّم* تصميم* معمار*
        डिज़ाइन डिजाइन रचना
    """,
    "analysis": """
        analyze analyzing critically critique* assess* diagnose* investigat* reconcil* scrutin*
        audit interpret hypothes* experiment experiments isolate disentangle bewerte* beurteil*
        untersuch* prüfe ursache* évalu* examine* analys* hypothèse* diagnosti* analiza* analice*
        evalúa* evalua* hipótesis críticamente investiga analizza* valuta* esamina* ipotesi
        analise* avalie* avaliar hipótese* beoordeel* onderzoek przeanaliz* oceń oceni* zbadaj
        hipotez* проанализ* анализ* оцени* исследу* разбер* гипотез* analiz değerlendir* incele
        حلّل* حلل* قيّم* قيم تحليل* ادرس विश्लेषण मूल्यांकन परिकल्पना
    """,
    "argument": """
        justif* weigh trade-off* tradeoff* evidence conclude conclusion* implication* argue
        counterargument* objection* reasoning recommend* ambigu* discuss interact* defend
        convinc* plausib* critici* debate thesis stance begründ* abwäg* wäge gegeneinander
        erörter* stellung empfiehl empfehlung* vertretbar compromis preuves argument* débat*
        défends pèse recommand* nuance* discut* evidencia supuestos recomend* postura defiende
        giustific* compromess* argoment* sostieni raccomand* posizione compromisso* fundament*
        evidências posição onderbouw* afweging* beargumenteer standpunt uzasadn* rozważ
        kompromis* stanowisk* обосну* обоснов* аргумент* компромисс* рассуди взвесь позици*
        доводы gerekçe* tartış* savun karşı argüman* برر* بررّ مبرر* علل ناقش* جادل موقف* तर्क*
        औचित्य बहस
    """,
    "depth": """
        generalis* generaliz* asymptotic* invariant* infinitely rigor* interleav* assumption*
        consisten* necessary sufficient optimal worst-case formally precisely closed-form
        complexity principles thorough* comprehensive* in-depth edge verallgemein* widersprech*
        streng* lückenlos* vollständig* hinreichend notwendig umfassend* tiefgehend* annahmen
        généralis* rigour* exhausti* approfondi* nécessaire* suffisant* principes asintót*
        profundi* principios esaustiv* principi princípios aprofund* veralgemen* grondig*
        uitputtend uogóln* ściśle dokładn* wyczerpując* обобщ* строго строгий исчерпыва* подробн*
        принципов genelle* titiz* kapsamlı ayrıntılı عمّم* عمم* بدقة شامل* المبادئ सामान्यीकर*
        विस्तृत गहन
    """,
    "systems": """
        concurren* deadlock* races atomic* thread-safe multithread* distributed
        consensus replicat* sharding shard shards compiler* interpreter eviction failover
        fault-toleran* microservice* tenancy downtime rollback* scalab* refactor* optimis*
        optimiz* leak* latency throughput lock-free lockfree idempoten* exactly-once scheduler
        kernel allocator parser transaction* migrat* monolith* backpressure cache-coheren* raft
        paxos crdt* mutex semaphore b-tree jit garbage zero-downtime high-availability
        consistency partition* load-balanc* solver cryptograph* protocol protocols resilien*
        legacy outage* pipeline* verteilt* threadsicher* verklemm* ausfall* nebenläufig*
        parallel* replikation* protokoll* distribué* cohéren* répliqu* compilateur* protocole*
        tolérant* panne* distribuid* tolerancia tolerante* compilador* minimización replicación
        planificador protocolo* distribuit* tolleran* concorren* compilatore* protocollo
        ridondan* distribuíd* tolerância consistência concorrên* microsserviç* gedistribueer*
        storing* fouttoleran* gelijktijdig* rozproszon* współbież* bez blokad odporn* kompilator*
        распредел* репликац* сбоев консенсус* параллел* отказоустойч* компилятор* транзакц*
        dağıtık* eşzamanlı* hataya derleyici* موزع* المتزام* مترجما वितरित समवर्ती
    """,
    "strategy": """
        strateg* curriculum scenario* milestone* go-to-market roadmap* proposal feasib* policy
        policies second-order long-term incentive* stakeholder* governance consequences reform*
        szenari* sanierung* risiken fahrplan* maßnahmen folgen langfristig* scénario* risques
        stratég* réforme* conséquences enjeux estrateg* riesgo* escenario* indicadores
        consecuencias políticas largo rischi scenari politiche conseguenze estratég* riscos
        cenário* consequências gevolgen risico* scenariusz* ryzyk* skutki стратег* сценари* риск*
        последств* strateji* senaryo* risk* sonuçları استراتيج* سيناريو* مخاطر* عواقب रणनीति*
        नीति* जोखिम* परिणाम
    """,
    "theory": """
        theorem* irrational* transcendent* integer integers primes eigenval* polynomial*
        induction continuous* cyclic undecidab* decidab* incomplete* np-* np-hard topolog*
        manifold* homolog* galois riemann* gödel* godel* turing* fourier* bayes* hilbert*
        lagrang* hamilton* euler* cauchy* laplac* markov* nash quantum relativ* thermodynamic*
        entropy schrödinger* navier* black-scholes conjecture* axiom* countab* uncountab*
        isomorph* bijection convex* converg* diverg* differentiab* equation equations inequalit*
        recurrence combinator* graph stochastic* variance ethic* moral* éthique* ética* etica*
        ethik* этик* этичес* أخلاق* determinism consciousness epistemolog* metaphysic* ontolog*
        utilitarian* kant kants kantian hegel* paradox* complexity-class primzahl*
        funktionenfolge ungleichung* gleichung* reihe konvergier* wahrscheinlichkeit*
        bewusstsein* willensfreiheit dénombrable* rationnel* théorème* inégalité* équation*
        intégrale* probabilit* conscience arbitre cíclico subgrupo* esperado desigualdad*
        ecuación* integral* irracional* probabilidad* albedrío determinismo conciencia
        disuguaglianz* equazion* irrazional* coscienza arbitrio indução primos grafo* equação
        stelling* ongelijkheid* vergelijking* priemgetal* twierdzeni* nierównoś* równani*
        dwudzieln* prawdopodob* cykli иррационал* теорем* неравенств* уравнен* вероятност*
        сходим* формул* граф* детерминизм* teorem* eşitsizli* denklem* olasılık* asal* irrasyonel
        نظرية* متباينة* معادلة* احتمال* نسبي الأولية मेय अभाज्य असमता समीकरण* प्रमेय अपरिमेय
        प्रायिकता
    """,
    "make": """
        write writes draft create creates implement generate build compose rewrite rephrase add
        fix make prepare reply port turn slogan* poem limerick haiku schreib* erstell* verfass*
        formulier* dichte mach mache baue bereite ergänze écris écrire rédige* crée créer invente
        prépare réécri* escrib* redact* crea crear haz prepara hazme scriv* creare componi
        escrev* redija crie criar faça monte schrijf* maak opstel* napisz* utwórz stwórz
        przygotuj напиш* состав* сочини сделай подготов* yaz yazar oluştur* hazırla اكتب* أنشئ*
        انشئ* أعد حضر लिखिए लिखो लिखें बनाइए बनाओ तैयार
    """,
    "explain": """
        explain explaining why difference* pros cons versus vs vs. outline walk works advantages
        disadvantages happens elaborate erklär* unterschied* vergleich* beschreib* warum wieso
        weshalb funktioniert entsteht entstehen vorteile nachteile expliqu* pourquoi différence*
        compar* décri* fonctionn* avantages raconte explic* diferencia* describ* funciona
        ventajas cuéntame spieg* differenz* confront* descriv* perché funziona vantaggi
        diferença* descreva vantagens porquê vergelijk* uitleg* leg waarom beschrijf werkt
        voordelen nadelen voor- wyjaśni* różnic* porówna* opisz dlaczego działa объясн* отличи*
        отличается сравни* опиши* почему зачем работает расскажи açıkla* karşılaştır* farkı fark
        anlat neden niçin çalışır oluşur اشرح* الفرق قارن* لماذا صف يعمل* وضح समझाइए समझाओ अंतर
        तुलना क्यों कैसे
    """,
    "worked": """
        solve solves show compute example examples plan suggest* schedule steps tasks tips ideas
        itinerary checklist recipe advice arrange organise organize menu budget zeige rechenweg
        beispiel* berechn* löse plane planen schlag vorschl* tipps ideen menü wochenplan calcul*
        montre résous exemple* étapes conseil* idées propose* suggère* pasos muestra ejemplo*
        resuelv* sugier* consejos organiza* planea itinerario esemp* calcol* risolv* sugger*
        consigli* exemplo* resolva sugira dicas ideias voorbeeld* bereken* przykład* oblicz*
        rozwiąż zaproponuj porad* пример* реши вычисл* предлож* посовет* совет* спланируй план
        örnek* hesapla* öner* planla ipucu مثال* احسب* اقترح* نصائح خطة उदाहरण सुझाव गणना योजना
    """,
    "condense": """
        summarise summarize summary summarised condense boil shorten paraphrase tldr tl;dr
        zusammenfass* fasse kürze résum* resum* sintetiza riassum* sintetizza samenvat* vat
        streść podsumuj кратко перескаж* резюм* özetle* لخص* सारांश संक्षेप
    """,
    "limits": """
        must without keep mention avoid exactly including below every each never only both all
        any none unless except until while most least nothing allowed strict full may cannot ohne
        mindestens höchstens jede jeder jedes alle nie nur kein keine muss müssen darf sans
        chaque maximum tous jamais doit sin cada todos nunca solo debe deben senza entro tutti
        mai ogni deve sem todas zonder elke alleen moet każdy wszystkie musi без каждого каждый
        все только должен нельзя olmadan tüm asla yalnızca كل دون يجب हर बिना सभी
    """,
    "reason": """
        if would could should might whether because cause causes caused estimate argument
        realistic order sequence options missing either case cases breaks true change changed
        although though despite separates distinguish falls wenn würde könnte sollte weil lassen
        trennen obwohl serait pourrait vérifie établis lorsque alors sería podría causa causas
        porque aunque inevitables sarebbe potrebbe seria poderia embora als zou hoewel gdyby
        mógłby choć если может причин* хотя eğer olabilir إذا لأن यदि क्योंकि
    """,
    "easy": """
        translate translation spell spelling typos antonym plural capital title headline define
        definition abbreviation uppercase lowercase correct tense sentiment spam positive
        negative language grammar punctuation commas capitalise capitalize übersetz*
        rechtschreib* korrigier* hauptstadt gegenteil synonym* mehrzahl nenne tippfehler sprache
        kommas überschrift tradui* corrige* orthograph* langue titre capitale traduc* ortograf*
        sinónimo* positivo negativo dime idioma título corregg* sinonimo lingua titolo traduz*
        corrija vertaal* verbeter hoofdstad taal przetłumacz* popraw stolica nazywa język
        перевед* антоним* синоним* столиц* язык* по-английски по-русски по-немецки по-французски
        исправь орфограф* başkent* çevir* yazım dil ترجم* عاصمة لغة صحح राष्ट्रीय अनुवाद राजधानी
        भाषा
    """,
    "pick": """
        convert extract label classify name list lists count tag mark highlight sort rename find
        pull extrahier* benenne zähle ordne liste markiere extrais nomme nommez compte classe
        classez extrae nombra cuenta clasifica enumera estrai elenca conta nomina extraia conte
        cite noem tel wypisz policz wymień извлеки назови перечисли посчитай выпиши listele say
        çıkar استخرج عدد اذكر गिनिए बताइए
    """,
    "chat": """
        thanks thank hello hi hey joke morning evening goodbye bye guten danke hallo bonjour
        merci salut hola gracias ciao grazie buongiorno olá obrigad* bedankt cześć dziękuję
        привет здравствуй* спасибо merhaba teşekkür* مرحبا شكرا नमस्ते धन्यवाद
    """,
    "fact": """
        who whose when where which wer wann wo welche* wem qui quand où quel quelle quels quelles
        combien quién quiénes cuándo dónde cuál cuáles cuánto* cuánta* chi quando dove quale
        quali quanti quanto quante quanta qual quem onde quantos quantas wanneer waar welk*
        hoeveel kto kiedy gdzie który która które ile jakiego jaki jaka кто когда где какой какая
        какое какие какого каком сколько куда kim nerede neresi hangi* kaç من متى أين كم ما هل
        कौन कब कहाँ कहां कितन* क्या
    """,
    "long_form": """
        essay essays report chapter whitepaper monograph treatise dissertation manifesto sonnet
        screenplay novella aufsatz abhandlung gutachten bericht facharbeit rapport mémoire exposé
        ensayo informe tesis saggio relazione tesi ensaio relatório tese betoog verslag scriptie
        esej raport rozprawk* эссе доклад реферат сочинени* makale rapor tez مقال* تقرير* بحث
        निबंध रिपोर्ट
    """,
    "structured": """
        json csv yaml xml table markdown columns schema tabelle spalten tableau colonnes tabla
        columnas tabella colonne tabela tabel tabeli таблиц* tablo جدول तालिका
    """,
}

# Said in more than one word.
_PHRASES: Final = {
    "proof": (
        "show that", "show why no", "zeige, dass", "zeig, dass", "leite her", "leite die",
        "leite das", "leite den", "montre que", "montrer que", "muestra que", "mostra che",
        "mostre que", "laat zien dat", "pokaż, że", "покажи, что",
    ),
    "worked": (
        "step by step", "schritt für schritt", "étape par étape", "paso a paso", "how long do",
    ),
    "depth": (
        "root cause", "every step", "jeden schritt", "chaque étape", "cada paso",
        "first principles", "from scratch", "von grund auf", "à partir de zéro", "desde cero",
        "rule out", "in detail",
    ),
    "argument": (
        "take a position", "both sides", "think it through", "prends position", "nimm stellung",
        "toma posición",
    ),
    "theory": (
        "free will", "libre arbitre", "libre albedrío", "libero arbitrio",
    ),
    "systems": (
        "race condition", "memory order", "data center", "data centre", "centro dati",
    ),
    "strategy": (
        "business model", "second-order", "long term",
    ),
    "short_form": (
        "one word", "single word", "yes or no", "true or false", "only the", "just the",
        "one sentence", "in a word", "ein wort", "einem wort", "ja oder nein", "nur die",
        "nur das", "einem satz", "un mot", "oui ou non", "vrai ou faux", "une phrase",
        "una palabra", "sí o no", "una frase", "solo el", "una parola", "sì o no", "uma palavra",
        "sim ou não", "één woord", "ja of nee", "jednym słowem", "tak czy nie", "одним словом",
        "да или нет", "tek kelime", "evet mi hayır", "كلمة واحدة", "نعم أو لا", "एक शब्द",
        "हाँ या नहीं", "nothing else",
    ),
    "explain": (
        "how do ", "how does ", "how would", "how should", "how can", "how to", "tell me how",
        "what happens", "comment fonc", "come funz", "cómo func", "wie funk", "wie kann",
        "wie lese", "comment re", "как работ", "jak dzia", "nasıl çal", "nasıl olu", "كيف ",
        "как в ", "hoe werkt", "what are the pros", "what should",
    ),
    "fact": (
        "what is ", "what's ", "what are ", "what colo", "what year", "what time", "what day",
        "what language", "what number", "what port", "what does", "whats ", "how many", "how much",
        "how tall", "how old", "how long", "how far", "how big", "how heavy", "how high",
        "how often", "wie viel", "wie hoch", "wie alt", "wie lang", "wie groß", "wie weit",
        "wie spät", "qu'est-ce que", "à quelle", "qué hora", "qué color", "qué año", "qué día",
        "qué idioma", "de qué", "qué es", "che ora", "che colore", "che lingua", "o que é",
        "que horas", "wat is", "hoe hoog", "hoe oud", "jak daleko", "co to", "что такое",
        "ne zaman", "ne renk", "ما هي", "ما هو", "ما لون",
    ),
    "easy": (
        "how do you say", "how do i say", "how do you spell", "wie sagt man", "wie schreibt man",
        "wie heißt", "comment dit-on", "comment s'écrit", "cómo se dice", "cómo se escribe",
        "come si dice", "come si scrive", "como se diz", "como se escreve", "как пишется",
        "jak się pisze", "nasıl yazılır", "another word", "what is the name", "called in",
        "tell me the",
    ),
}  # fmt: skip

# Chinese, Japanese, Korean.
_ANYWHERE: Final = {
    "proof": """
        证明 推导 反驳 反例 証明 導出 反論 증명 유도하 반박 반례
    """,
    "design": """
        设计 架构 設計 アーキテクチャ 설계 아키텍처
    """,
    "analysis": """
        分析 评估 假设 诊断 評価 検討 仮説 診断 분석 평가 가설 진단
    """,
    "argument": """
        权衡 论证 论述 优缺点 取舍 根拠 トレードオフ 論じ 論証 提言 정당화 절충 논증 논하 근거
    """,
    "depth": """
        推广 严格 完整 根本原因 第一原理 详细 一般化 厳密 網羅 일반화 엄밀 자세히 근본
    """,
    "systems": """
        并发 死锁 一致性 可用性 复杂度 分布式 无锁 编译器 故障 整合性 並行 分散 耐障害 コンパイラ
        분산 일관성 가용성 동시성 컴파일러 리전
    """,
    "strategy": """
        策略 方案 战略 风险 政策 戦略 対策 リスク 전략 위험 정책
    """,
    "theory": """
        函数在 区间 素数 质数 定理 方程 不等式 概率 无理数 自由意志 決定論 方程式 確率 意識 소수
        정리 방정식 부등식 확률 자유의지
    """,
    "make": """
        写一 帮我写 写段 实现 做一个 書いて 作成 作って まとめて 써 작성 만들어
    """,
    "explain": """
        解释 说明 比较 区别 为什么 怎么工作 如何工作 説明 比較 比べ 違い なぜ どうやって
        どのように 설명 비교 차이 왜 어떻게
    """,
    "worked": """
        例子 步骤 举一 建议 安排 计划 例を 手順 コツ 提案 計画 예를 계획 추천 제안
    """,
    "condense": """
        总结 概括 要約 요약
    """,
    "limits": """
        必须 不要 每个 所有 不得 不能 任一 必ず すべて だけ ないように 반드시 모든 없이
    """,
    "reason": """
        如果 是否 推理 原因 使得 場合 なら たうえで のに 만약 이유
    """,
    "easy": """
        翻译 英语怎么说 什么语言 訳して 英語で何 何語 번역 수도는 영어로
    """,
    "pick": """
        列出 提取 分类 数一数 抽出 分類 挙げて 추출 나열 분류
    """,
    "chat": """
        你好 谢谢 こんにちは ありがとう 안녕 감사
    """,
    "fact": """
        谁 什么 哪 多少 几 多长 多高 多重 誰 いつ どこ 何 いくつ いくら 누구 언제 어디 몇 무엇
        무슨 얼마
    """,
    "short_form": """
        一个词 一句话 是或否 只回答 一言で 一語で はいかいいえ 한 단어로
    """,
    "long_form": """
        论文 报告 レポート 論文 보고서 논문
    """,
    "structured": """
        表格 表形式 표로
    """,
}


def _by_head() -> Mapping[str, tuple[tuple[str, bool, str], ...]]:
    """Arrange the cues by their first letters: the cue, whether more may follow, its family."""
    known: dict[tuple[str, bool], str] = {}
    for family, words in _WORDS.items():
        for word in words.split():
            known.setdefault((word.rstrip("*"), word.endswith("*")), family)
    found: dict[str, tuple[tuple[str, bool, str], ...]] = {}
    for (cue, more), family in known.items():
        head = cue[:HEAD]
        found[head] = (*found.get(head, ()), (cue, more and len(cue) >= HEAD, family))
    return MappingProxyType(found)


BY_HEAD: Final = _by_head()


def family_of(word: str) -> str | None:
    """Return the family of a word in lower case, if it is a cue."""
    for cue, more, family in BY_HEAD.get(word[:HEAD], ()):
        if word == cue or (more and word.startswith(cue)):
            return family
    return None


def _by_first() -> Mapping[str, tuple[tuple[str, str], ...]]:
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for family, phrases in _PHRASES.items():
        for phrase in phrases:
            first = phrase.split()[0].strip(",").partition("'")[0]
            found[first] = (*found.get(first, ()), (phrase, family))
    return MappingProxyType(found)


PHRASES: Final = _by_first()  # by their first word
HEADS: Final = frozenset(BY_HEAD) | {first[:HEAD] for first in PHRASES}
ANYWHERE: Final[Mapping[str, str]] = MappingProxyType(
    {cue: family for family, cues in reversed(_ANYWHERE.items()) for cue in cues.split()}
)

# Words after which a command may follow within a sentence.
_OPENINGS: Final = """
    please can could would will now then also and first next finally help let i i'd we you
    given using based from for in bitte kannst können könntest dann jetzt und mir aus s'il peux
    pouvez pourrais merci ensuite puis por puedes podrías ahora luego y per puoi potresti poi e
    você pode agora depois wil kun graag alsjeblieft proszę czy teraz możesz пожалуйста можешь
    можете теперь затем и lütfen şimdi هل من कृपया
"""
OPENINGS: Final = frozenset(_OPENINGS.split())

# How a Japanese or Korean sentence ends that asks for something, without its full stop.
_REQUESTS: Final = """
    ください 下さい て せよ なさい たい ほしい です 세요 줘 시오 하라 해
"""
REQUESTS: Final = tuple(_REQUESTS.split())

# Words for "how"; a question for a word or a spelling begins with them too.
_HOW: Final = "how wie comment cómo ¿cómo come como как jak nasıl"
HOW: Final = tuple(_HOW.split())
