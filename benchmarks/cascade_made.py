"""Labelled prompts that are made from templates: the adversarial half of what the weights fit.

Each language has wishes of three levels with gaps for a topic, and a text to paste. A short hard
wish stands beside an easy one of the same length, and an easy question stands before, behind and
inside a long text, or at the end of a long story. Topics and wordings are other ones than those of
the prompts that are kept out of the fit (benchmarks/data/complexity.jsonl, written by hand).
"""

# ruff: noqa: E501, ISC004, RUF001 - tables of texts, in other alphabets too; a row stays one row

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# language: level: wishes, with {0} for a topic; then the topics of that level.
WISHES: dict[str, dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "en": {
        "simple": (
            ("What colour is {0}?", "Where is {0} found?", "How do you spell {0}?",
             "Translate {0} into Danish.", "Is {0} heavy? Answer yes or no.", "{0} in one word",
             "How many letters has {0}?", "what's {0} called in Swedish"),
            ("amber", "a heron", "the moon", "cinnamon"),
        ),
        "medium": (
            ("Explain {0} to a beginner.", "How does {0} work?", "Write a short note about {0}.",
             "Give me tips for {0}.", "Compare two ways of {0}.", "Why do people like {0}?",
             "Make a checklist for {0}.", "Write a small script that helps with {0}."),
            ("composting", "sorting photos", "bread baking", "a garden pond"),
        ),
        "complex": (
            ("Prove {0}.", "Derive {0} from first principles.", "Is {0} decidable? Argue.",
             "Refute {0}.", "Generalise {0} and find where it breaks.",
             "Give a rigorous account of {0}.", "Find a counterexample to {0} or prove it."),
            ("the pigeonhole principle", "the law of large numbers", "Noether's theorem",
             "the master theorem"),
        ),
        "hard code": (
            ("Implement {0}.", "Design {0}.", "Write {0} from scratch.", "Architect {0} for a bank.",
             "Review {0} for races and deadlocks."),
            ("a B-tree with concurrent inserts", "a lock-free stack", "a rate limiter across regions",
             "an optimising JIT compiler"),
        ),
        "hard thought": (
            ("Weigh the ethics of {0}.", "Should states ban {0}? Take a position.",
             "Assess the second-order effects of {0}.", "Devise a strategy for {0}."),
            ("gene drives", "autonomous weapons", "a wealth tax", "leaving a currency union"),
        ),
    },
    "de": {
        "simple": (
            ("Welche Farbe hat {0}?", "Wo findet man {0}?", "Wie schreibt man {0}?",
             "Wie heißt {0} auf Englisch?", "Ist {0} schwer? Ja oder nein."),
            ("Bernstein", "ein Reiher", "Zimt"),
        ),
        "medium": (
            ("Erkläre {0} für Anfänger.", "Wie funktioniert {0}?", "Schreib eine kurze Notiz über {0}.",
             "Gib mir Tipps für {0}.", "Warum mögen Leute {0}?"),
            ("Kompostieren", "das Brotbacken", "einen Gartenteich"),
        ),
        "complex": (
            ("Beweise {0}.", "Leite {0} her.", "Widerlege {0}.", "Verallgemeinere {0} und begründe es.",
             "Begründe streng: {0}."),
            ("das Schubfachprinzip", "das Gesetz der großen Zahlen", "den Satz von Noether"),
        ),
        "hard thought": (
            ("Entwirf {0}.", "Bewerte die Folgen: {0}.", "Entwickle eine Strategie für {0}."),
            ("einen Konsensalgorithmus", "eine Vermögenssteuer", "den Austritt aus einer Währungsunion"),
        ),
    },
    "fr": {
        "simple": (
            ("De quelle couleur est {0} ?", "Où trouve-t-on {0} ?", "Comment s'écrit {0} ?",
             "Comment dit-on {0} en anglais ?", "Traduis {0} en italien."),
            ("l'ambre", "un héron", "la cannelle"),
        ),
        "medium": (
            ("Explique {0} à un débutant.", "Comment fonctionne {0} ?", "Écris une petite note sur {0}.",
             "Donne des conseils pour {0}.", "Pourquoi aime-t-on {0} ?"),
            ("le compostage", "la cuisson du pain", "un bassin de jardin"),
        ),
        "complex": (
            ("Démontre {0}.", "Déduis {0} des premiers principes.", "Généralise {0} et justifie.",
             "Trouve un contre-exemple à {0} ou démontre-le."),
            ("le principe des tiroirs", "la loi des grands nombres", "le théorème de Noether"),
        ),
        "hard thought": (
            ("Conçois {0}.", "Évalue les conséquences : {0}.", "Élabore une stratégie pour {0}."),
            ("un protocole de consensus", "un impôt sur la fortune", "quitter une union monétaire"),
        ),
    },
    "es": {
        "simple": (
            ("¿De qué color es {0}?", "¿Dónde se encuentra {0}?", "¿Cómo se escribe {0}?",
             "¿Cómo se dice {0} en inglés?", "Traduce {0} al francés."),
            ("el ámbar", "una garza", "la canela"),
        ),
        "medium": (
            ("Explica {0} a un principiante.", "¿Cómo funciona {0}?", "Escribe una nota corta sobre {0}.",
             "Dame consejos para {0}.", "¿Por qué gusta tanto {0}?"),
            ("el compostaje", "hornear pan", "un estanque de jardín"),
        ),
        "complex": (
            ("Demuestra {0}.", "Deduce {0} desde los primeros principios.", "Refuta {0}.",
             "Generaliza {0} y justifícalo.", "Encuentra un contraejemplo de {0}."),
            ("el principio del palomar", "la ley de los grandes números", "el teorema de Noether"),
        ),
        "hard thought": (
            ("Diseña {0}.", "Evalúa las consecuencias de {0}.", "Elabora una estrategia para {0}."),
            ("un algoritmo de consenso", "un impuesto a la riqueza", "salir de una unión monetaria"),
        ),
    },
    "it": {
        "simple": (
            ("Di che colore è {0}?", "Dove si trova {0}?", "Come si scrive {0}?",
             "Come si dice {0} in inglese?"),
            ("l'ambra", "un airone"),
        ),
        "medium": (
            ("Spiega {0} a un principiante.", "Come funziona {0}?", "Scrivi una breve nota su {0}.",
             "Dammi consigli per {0}."),
            ("il compostaggio", "un laghetto da giardino"),
        ),
        "complex": (
            ("Dimostra {0}.", "Deriva {0} dai primi principi.", "Confuta {0}.", "Progetta {0}."),
            ("il principio dei cassetti", "un algoritmo di consenso"),
        ),
    },
    "pt": {
        "simple": (
            ("Qual é a cor de {0}?", "Onde fica {0}?", "Como se escreve {0}?",
             "Como se diz {0} em inglês?"),
            ("âmbar", "uma garça"),
        ),
        "medium": (
            ("Explique {0} a um iniciante.", "Como funciona {0}?", "Escreva uma nota curta sobre {0}.",
             "Dê dicas para {0}."),
            ("a compostagem", "um lago de jardim"),
        ),
        "complex": (
            ("Demonstre {0}.", "Deduza {0} dos primeiros princípios.", "Refute {0}.", "Projete {0}."),
            ("o princípio da casa dos pombos", "um algoritmo de consenso"),
        ),
    },
    "ru": {
        "simple": (
            ("Какого цвета {0}?", "Где находится {0}?", "Как пишется слово {0}?",
             "Как по-английски {0}?", "Переведи {0} на немецкий."),
            ("янтарь", "цапля"),
        ),
        "medium": (
            ("Объясни новичку, что такое {0}.", "Как работает {0}?", "Напиши короткую заметку про {0}.",
             "Дай советы про {0}.", "Почему людям нравится {0}?"),
            ("компост", "садовый пруд"),
        ),
        "complex": (
            ("Докажи {0}.", "Выведи {0} из первых принципов.", "Опровергни {0}.",
             "Обобщи {0} и обоснуй.", "Спроектируй {0}."),
            ("принцип Дирихле", "закон больших чисел", "алгоритм консенсуса"),
        ),
    },
    "zh": {
        "simple": (
            ("{0}是什么颜色?", "{0}在哪里?", "{0}用英语怎么说?", "把“{0}”翻译成英语。", "{0}有多重?"),
            ("琥珀", "白鹭"),
        ),
        "medium": (
            ("给初学者解释{0}。", "{0}是怎么工作的?", "写一段关于{0}的短文。", "给我一些关于{0}的建议。"),
            ("堆肥", "花园池塘"),
        ),
        "complex": (
            ("证明{0}。", "从第一原理推导{0}。", "反驳{0}。", "推广{0}并论证。", "设计{0}。"),
            ("抽屉原理", "大数定律", "分布式共识算法"),
        ),
    },
    "ja": {
        "simple": (
            ("{0}は何色ですか。", "{0}はどこにありますか。", "{0}は英語で何と言いますか。",
             "「{0}」を英語に訳してください。"),
            ("琥珀", "サギ"),
        ),
        "medium": (
            ("初心者に{0}を説明してください。", "{0}はどのように動きますか。",
             "{0}について短い文章を書いてください。", "{0}のコツを教えてください。"),
            ("堆肥作り", "庭の池"),
        ),
        "complex": (
            ("{0}を証明してください。", "{0}を第一原理から導出してください。", "{0}に反論してください。",
             "{0}を一般化し、根拠を論じてください。", "{0}を設計してください。"),
            ("鳩の巣原理", "大数の法則", "分散合意アルゴリズム"),
        ),
    },
    "ko": {
        "simple": (("{0}은 무슨 색인가요?", "{0}은 영어로 뭐예요?", "{0}은 어디에 있나요?"), ("호박", "달")),
        "medium": (("초보자에게 {0}을 설명해 주세요.", "{0}에 대한 짧은 글을 써 주세요."), ("퇴비", "연못")),
        "complex": (("{0}을 증명하세요.", "{0}을 설계하세요."), ("비둘기집 원리", "합의 알고리즘")),
    },
    "ar": {
        "simple": (("ما لون {0}؟", "أين يوجد {0}؟", "ترجم {0} إلى الفرنسية."), ("الكهرمان", "القمر")),
        "medium": (("اشرح {0} للمبتدئين.", "كيف يعمل {0}؟", "اكتب فقرة قصيرة عن {0}."), ("السماد", "الفرن")),
        "complex": (("أثبت {0}.", "استنتج {0} من المبادئ الأولى.", "صمم {0}."), ("مبدأ برج الحمام",)),
    },
    "pl": {
        "simple": (("Jakiego koloru jest {0}?", "Gdzie jest {0}?", "Jak się pisze {0}?"), ("bursztyn",)),
        "medium": (("Wyjaśnij początkującemu, czym jest {0}.", "Jak działa {0}?"), ("kompost", "staw")),
        "complex": (("Udowodnij: {0}.", "Zaprojektuj {0}.", "Obal tezę: {0}."), ("zasada szufladkowa",)),
    },
    "tr": {
        "simple": (("{0} ne renktir?", "{0} nerede?", "{0} nasıl yazılır?"), ("kehribar", "ay")),
        "medium": (("Yeni başlayan birine {0} konusunu açıkla.", "{0} nasıl çalışır?"), ("kompost",)),
        "complex": (("{0} ilkesini kanıtla.", "{0} tasarla.", "{0} çürüt."), ("güvercin yuvası",)),
    },
    "hi": {
        "simple": (("{0} का रंग क्या है?", "{0} कहाँ है?"), ("चाँद", "दालचीनी")),
        "medium": (("{0} कैसे काम करता है, समझाइए।", "{0} पर एक छोटा लेख लिखिए।"), ("खाद", "तालाब")),
        "complex": (("{0} सिद्ध कीजिए।", "{0} का विश्लेषण और मूल्यांकन कीजिए।"), ("कबूतरखाना सिद्धांत",)),
    },
    "nl": {
        "simple": (("Welke kleur heeft {0}?", "Waar vind je {0}?", "Vertaal {0} naar het Duits."), ("barnsteen",)),
        "medium": (("Leg {0} uit aan een beginner.", "Hoe werkt {0}?"), ("composteren", "een tuinvijver")),
        "complex": (("Bewijs {0}.", "Ontwerp {0}.", "Weerleg {0}."), ("het duiventilprincipe",)),
    },
}  # fmt: skip

TEXTS: dict[str, tuple[str, ...]] = {
    "en": (
        "The orchard behind the school was planted in 1931 by pupils of the two upper classes. Of the"
        " forty trees nineteen still bear fruit, mostly old sorts that no shop sells any more. Each"
        " October the parents pick the apples and carry them to the press in the next village. This"
        " year the harvest was small, because late frost destroyed the blossom on three nights in a"
        " row. A teacher has begun to analyse the soil and wants to find out why the row by the wall"
        " suffers less. The architects of the new gym had planned to fell six trees; after a long"
        " argument the design was changed. Juice is sold on Saturdays from nine to noon.",
        "Dear committee,\n\nat the meeting on Monday I promised to write down what was said about the"
        " roof. The tiles above the choir room are loose, two are missing, and rain comes in. The"
        " roofer offers to repair it for 1,840 euros in June or to renew the whole side for 9,200."
        " Should we decide now or wait for the grant? Please compare both offers and tell me what you"
        " think, and explain your reasons to Hanna as well. The next meeting is on 14 May.\n\nYours,"
        " Emil Sundqvist",
        "id;name;team;hours;note\n" + "\n".join(
            f"{n};{name};{team};{5 + n * 3 % 9};{note}"
            for n, (name, team, note) in enumerate(
                [("Ada", "build", "proof of delivery missing"), ("Bo", "paint", "ok"),
                 ("Cy", "build", "design changed"), ("Di", "roof", "ok"), ("Ed", "roof", "ill"),
                 ("Fay", "paint", "analyse invoice"), ("Gus", "build", "ok"), ("Hal", "paint", "ok"),
                 ("Ivy", "roof", "strategy talk"), ("Jo", "build", "ok"), ("Kim", "paint", "late")]
            )
        ),
        "```js\nfunction merge(left, right) {\n  const out = [];\n  let i = 0, j = 0;\n  while (i <"
        " left.length && j < right.length) {\n    if (left[i] <= right[j]) out.push(left[i++]);\n   "
        " else out.push(right[j++]);\n  }\n  while (i < left.length) out.push(left[i++]);\n  while (j"
        " < right.length) out.push(right[j++]);\n  return out;\n}\n\nfunction mergeSort(items) {\n  if"
        " (items.length < 2) return items;\n  const middle = items.length >> 1;\n  return"
        " merge(mergeSort(items.slice(0, middle)), mergeSort(items.slice(middle)));\n}\n```",
    ),
    "de": (
        "Die Stadtwerke erneuern ab Montag die Wasserleitung in der Gartenstraße. Die Arbeiten dauern"
        " voraussichtlich drei Wochen, die Straße ist so lange nur für Anwohner frei. Der Bus der"
        " Linie 7 fährt eine Umleitung über den Markt. Bei der Analyse der alten Rohre zeigte sich,"
        " warum der Druck abends so stark sank. Der ursprüngliche Entwurf sah eine Vollsperrung vor,"
        " wurde aber nach Protesten geändert. Müll wird dienstags an der Ecke abgeholt.",
    ),
    "fr": (
        "Le club de voile organise sa régate d'automne le premier dimanche d'octobre. Les inscriptions"
        " coûtent dix-huit euros et se font en ligne jusqu'au vendredi soir. Le parcours a été conçu"
        " par deux anciens champions, qui ont analysé les vents des dix dernières années. Le départ"
        " est prévu à neuf heures et demie devant le phare. En cas de tempête, la course sera reportée"
        " d'une semaine. Un repas est servi ensuite dans le hangar.",
    ),
    "es": (
        "La escuela de música ofrece este curso clases de guitarra, piano y percusión. Las clases"
        " empiezan el 3 de octubre y duran cuarenta y cinco minutos. El director explicó por qué se"
        " cambió el diseño del plan de estudios y prometió analizar las quejas de los padres. La"
        " matrícula cuesta treinta euros y la cuota mensual cincuenta y cinco. Los instrumentos se"
        " pueden alquilar. El concierto final será en junio, en el teatro del puerto.",
    ),
    "ru": (
        "Жители деревни решили восстановить старый мост через реку. Его построили в 1908 году, и с"
        " тех пор он дважды горел. Инженеры проанализировали состояние опор и объяснили, почему"
        " левая просела сильнее. Проект стоит три миллиона рублей, половину обещала область. Работы"
        " начнутся в мае и продлятся до сентября. Пока ходит лодка, по десять рублей с человека.",
    ),
    "zh": (
        "图书角从下个月起调整开放时间,周一到周五下午两点到晚上八点,周末全天开放。志愿者花了半年时间整理"
        "旧书,一共登记了三千二百本。有读者问为什么儿童区变小了,负责人分析说是因为重新设计了书架的布局。"
        "借书每人最多五本,期限三十天,逾期每天收费一角。捐书请在周六上午送到前台,咖啡机暂时停用。",
    ),
    "ja": (
        "町内の夏祭りは八月十日に小学校の校庭で行われます。屋台は午後三時から、盆踊りは七時から始まります。"
        "昨年はごみの量が問題になったため、実行委員会が原因を分析し、会場の設計を見直しました。"
        "雨の場合は翌日に延期します。駐車場はありませんので、徒歩か自転車でお越しください。子どもは参加無料です。",
    ),
}  # fmt: skip

# What is asked about a text: {0} is the text. The level is that of the question.
ABOUT: dict[str, dict[str, tuple[str, ...]]] = {
    "en": {
        "simple": ("What language is this?\n\n{0}", "{0}\n\nTranslate that to Norwegian.",
                   "Correct the spelling: {0}", "{0}\n\nHow many sentences is that? Only the number.",
                   "Suggest a title for the text below.\n\n{0}",
                   'Which numbers occur in it?\n\n"{0}"',
                   "Is this formal or informal? Answer in one word.\n\n{0}"),
        "medium": ("Summarise this in four bullet points.\n\n{0}",
                   "{0}\n\nTurn that into a short announcement for parents.",
                   "Rewrite this for children and explain hard words.\n\n{0}"),
        "complex": ("Critically assess every claim in this, find hidden assumptions and design a study that"
                    " would test them.\n\n{0}",
                    "{0}\n\nAnalyse the root causes, weigh three strategies against each other and justify"
                    " a recommendation."),
    },
    "de": {
        "simple": ("Welche Sprache ist das?\n\n{0}", "{0}\n\nÜbersetze das ins Französische.",
                   "Korrigiere die Kommas: {0}"),
        "medium": ("Fasse das in drei Punkten zusammen.\n\n{0}",),
        "complex": ("{0}\n\nAnalysiere die Ursachen, wäge drei Strategien ab und begründe eine Empfehlung.",),
    },
    "fr": {
        "simple": ("En quelle langue est ce texte ?\n\n{0}", "{0}\n\nTraduis cela en allemand.",
                   "Combien coûte l'inscription ? « {0} »"),
        "medium": ("Résume ce texte en trois points.\n\n{0}",),
        "complex": ("{0}\n\nAnalyse les causes, compare trois stratégies et justifie une recommandation.",),
    },
    "es": {
        "simple": ("¿En qué idioma está escrito?\n\n{0}", "{0}\n\nTraduce esto al inglés.",
                   "Corrige la ortografía: {0}"),
        "medium": ("Resume el texto en tres puntos.\n\n{0}",),
        "complex": ("{0}\n\nAnaliza las causas, compara tres estrategias y justifica una recomendación.",),
    },
    "ru": {
        "simple": ("На каком это языке?\n\n{0}", "{0}\n\nПереведи это на французский."),
        "medium": ("Перескажи это в трёх пунктах.\n\n{0}",),
        "complex": ("{0}\n\nПроанализируй причины, сравни три стратегии и обоснуй выбор.",),
    },
    "zh": {
        "simple": ("这是什么语言?\n\n{0}", "{0}\n\n请把上面的话翻译成法语。"),
        "medium": ("用三点总结下面的内容。\n\n{0}",),
        "complex": ("{0}\n\n分析根本原因,权衡三种策略并论证你的建议。",),
    },
    "ja": {
        "simple": ("これは何語ですか。\n\n{0}", "{0}\n\n上の文をフランス語に訳してください。"),
        "medium": ("次の文章を三点で要約してください。\n\n{0}",),
        "complex": ("{0}\n\n根本原因を分析し、三つの戦略を比較検討して根拠を論じてください。",),
    },
}  # fmt: skip

# Long stories before a question: the story, easy questions, and others of medium difficulty.
STORIES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "en": (
        "Hello there, I hope this finds you well. We have been renovating the kitchen since spring, and"
        " between the dust, the noise and a plumber who never calls back I have lost all sense of time."
        " My cousin is staying with us, she designs theatre costumes and argues about everything, which"
        " is fun until midnight. She explained her whole theory of colour to me yesterday, and I still"
        " could not convince her of anything. In short, we need you to settle one thing. ",
        ("What is the opposite of scarlet on the colour wheel?", "How many weeks has a year?",
         "Who sang Yesterday?", "Please tell me the freezing point of water in Fahrenheit.",
         "When does spring begin?"),
        ("How do we get wall paint off an oak floor?", "Please write a short thank-you note to her.",
         "Can you give me ideas for a quiet evening at home?"),
    ),
    "de": (
        "Guten Tag, entschuldigen Sie die lange Vorrede. Wir haben am Wochenende mit der ganzen Familie"
        " im Garten gesessen, und wie immer wurde über alles diskutiert, vom Wetter bis zur Politik. Mein"
        " Schwager plant ein Haus und erklärt jedem, warum sein Architekt unrecht hat. Am Ende blieb eine"
        " Wette offen, und ich möchte sie endlich gewinnen. ",
        ("Wie viele Wochen hat ein Jahr?", "Wer sang 99 Luftballons?", "Wann beginnt der Frühling?"),
        ("Wie bekommt man Farbe vom Parkett?", "Schreib ihm bitte eine kurze Nachricht dazu."),
    ),
    "fr": (
        "Bonjour, pardonnez cette longue introduction. Nous avons passé le dimanche au bord du lac avec"
        " des amis, et comme toujours on a discuté de tout, du temps, de la politique et des projets de"
        " maison de mon beau-frère, qui explique à chacun pourquoi son architecte a tort. Il reste un pari"
        " que je voudrais gagner. ",
        ("Combien de semaines compte une année ?", "Qui a chanté La Vie en rose ?"),
        ("Écris-lui un petit message amusant.", "Comment enlever de la peinture sur un parquet ?"),
    ),
    "es": (
        "Buenos días, perdona que me alargue tanto. El domingo comimos todos en casa de mis abuelos y,"
        " como siempre, se discutió de todo, del tiempo, de la política y de los planes de mi cuñado, que"
        " explica a cualquiera por qué su arquitecto se equivoca. Al final quedó una apuesta y quiero"
        " ganarla. ",
        ("¿Cuántas semanas tiene un año?", "¿Quién cantaba La Bamba?"),
        ("Escríbele un mensaje corto y divertido.", "¿Cómo se quita la pintura de un suelo de madera?"),
    ),
    "ru": (
        "Здравствуйте, простите за длинное вступление. В воскресенье мы сидели на даче всей семьёй и,"
        " как всегда, спорили обо всём: о погоде, о политике и о том, как шурин строит дом и всем"
        " объясняет, почему архитектор неправ. В конце остался один спор, и я хочу его выиграть. ",
        ("Сколько недель в году?", "Кто спел «Миллион алых роз»?"),
        ("Напиши ему короткое шутливое сообщение.", "Как отмыть краску с деревянного пола?"),
    ),
}  # fmt: skip


def _wishes() -> Iterator[tuple[str, str, str, str]]:
    """Level, language, kind and text of the short wishes: each with two of its topics."""
    for lang, levels in WISHES.items():
        for name, (wishes, topics) in levels.items():
            level = "complex" if name.startswith("hard") else name
            for place, wish in enumerate(wishes):
                for nth in range(min(2, len(topics))):
                    topic = topics[(place + nth) % len(topics)]
                    yield level, lang, f"short-{level}", wish.format(topic)


def _questions() -> Iterator[tuple[str, str, str, str]]:
    """The same of the questions about a text: each about two of the texts."""
    for lang, asked in ABOUT.items():
        texts = TEXTS[lang]
        for level, questions in asked.items():
            for place, question in enumerate(questions):
                for nth in range(min(2, len(texts))):
                    text = texts[(place + nth) % len(texts)]
                    yield level, lang, f"pasted-{level}", question.replace("{0}", text)


def _stories() -> Iterator[tuple[str, str, str, str]]:
    """The same of the questions behind a story."""
    for lang, (story, easy, medium) in STORIES.items():
        yield from (("simple", lang, "story-simple", story + question) for question in easy)
        yield from (("medium", lang, "story-medium", story + question) for question in medium)


def made() -> list[dict[str, Any]]:
    """Make the prompts, always the same ones, as rows of the labelled file; the set is `made`."""
    rows: list[dict[str, Any]] = []
    numbers: Counter[str] = Counter()
    for level, lang, kind, text in (*_wishes(), *_questions(), *_stories()):
        numbers[level] += 1
        name = f"{level}-t{numbers[level]:03d}"
        row = {"id": name, "set": "made", "level": level, "lang": lang, "kind": kind, "text": text}
        rows.append(row)
    return rows
