//! The sentence templates of the stories. Slots are defined in `story.rs`.

/// The sentences that depend on what sort of wish it is.
pub struct FamilyPhrases {
    pub wish: &'static [&'static str],
    pub motive: &'static [&'static str],
    pub start: &'static [&'static str],
    pub success: &'static [&'static str],
}

pub const OPENINGS: &[&str] = &[
    "Once upon a time, {a:nature} {kind} named {n} lived {home}.",
    "Once upon a time, there was {a:nature} {kind} named {n} who lived {home}.",
    "Once upon a time, {home}, there lived {a:nature} {kind} named {n}.",
    "Once there was {a:nature} {kind} whose name was {n}. {He} lived {home}.",
    "Long ago, {home}, there lived {a:nature} {kind} called {n}.",
    "{Home}, there lived {a:nature} {kind} named {n}.",
    "There once was {a:nature} {kind} named {n}. {He} had a [small|simple|warm] home {home}.",
    "{N} was {a:nature} {kind} who lived {home}.",
    "Far away, {home}, lived {a:nature} {kind} named {n}.",
    "A long time ago, {a:nature} {kind} named {n} made {his} home {home}.",
    "Not so long ago, {a:nature} {kind} named {n} lived {home}.",
    "[Many years ago|Some time ago], {a:nature} {kind} called {n} lived {home}.",
];

pub const DAILY: &[&str] = &[
    "Every [morning|evening], {he} ate {food} and [looked at the sky|listened to the wind|hummed a little song|swept the floor].",
    "{N} liked {food}, [warm socks|long naps|old songs|rainy days|funny stories], and the [smell of rain|sound of bells|light of the moon].",
    "All the neighbors knew {n}, because {he} [always shared {his} {food}|never forgot to say good morning|laughed at every joke|waved at everyone].",
    "{His} days were [quiet|simple|slow|peaceful], and {his} nights were [full of dreams|long and still|full of stars].",
    "{He} had [a red scarf|a small lamp|an old blanket|a blue cup|a wooden chair] and [not much else|a great many dreams|a very big heart].",
    "Nobody [laughed as loudly|slept as deeply|worked as hard|asked as many questions] as {n}.",
    "On most days, {n} [gathered firewood|watered the plants|counted the clouds|watched the birds|fixed little things] and had {food} for supper.",
];

pub const SKILL: FamilyPhrases = FamilyPhrases {
    wish: &[
        "More than anything, {n} wanted to learn how to {want}.",
        "{N} wanted to {want}.",
        "{N} had one wish: {he} wanted to {want}.",
        "But {n} had a dream. {He} wanted to {want}.",
        "Every night, {n} dreamed that {he} could {want}.",
        "There was one thing {n} could not do, and {he} longed to {want}.",
    ],
    motive: &[
        "\"If I could {want},\" {he} said, \"I would be the happiest {kind} in the {place}.\"",
        "{His} [mother|father|grandmother|uncle|aunt|best friend] could do it well, and {n} wanted to be just the same.",
        "Everyone said it was [too hard|impossible|silly] for {a:kind}, but {n} did not listen.",
        "{He} had seen it done once, and {he} could not forget it.",
    ],
    start: &[
        "{Time}, {n} began to practice.",
        "{Time}, {he} took a deep breath and tried for the first time.",
        "{Time}, {n} decided to begin. {He} tried and tried.",
        "{Time}, {n} got up early, ate some {food}, and set to work.",
        "So {he} practiced every day, even when it rained.",
    ],
    success: &[
        "{N} tried once more, and this time {he} {did}.",
        "The next day, {n} {did}. [Everyone cheered|The whole {place} cheered|{M} clapped|{M} cheered].",
        "After many tries, {n} {did}!",
        "Slowly, day by day, it became easier. At last {n} {did}.",
        "And then it happened: {n} {did}. \"I did it!\" {he} cried.",
    ],
};

pub const FIND: FamilyPhrases = FamilyPhrases {
    wish: &[
        "{N} wanted to find {thing}.",
        "More than anything, {n} wished to find {thing}.",
        "{N} had heard of {thing}, and {he} wanted to find it.",
        "One thing was missing in {his} life: {n} wanted to find {thing}.",
        "Every night, {n} dreamed of {thing}. {He} wanted to find it.",
    ],
    motive: &[
        "{His} grandmother had lost it [long ago|in a storm|on her wedding day|when she was a child].",
        "People said that whoever held it would [never be sad again|always find the way home|have good luck|sleep without bad dreams].",
        "\"It must be somewhere,\" {n} said, \"and I will look until I find it.\"",
        "It was meant as a present for {his} [mother|father|sister|brother|teacher|best friend].",
    ],
    start: &[
        "{Time}, {n} packed some {food} and set out to look for it.",
        "{Time}, {he} began to search. {He} looked under every [stone|leaf|bush] and behind every [door|tree|wall].",
        "{Time}, {n} left {his} home and followed [the road|the stream|a narrow path|an old map] to the [north|south|east|west].",
        "{Time}, {he} took {his} [lantern|stick|bag|hat] and went to search.",
    ],
    success: &[
        "There, [behind a stone|under a bush|in the tall grass|in a hollow log|beneath some leaves|at the bottom of a well], {n} saw something. It was {thing}!",
        "[The next day|Soon|That evening|At last], {n} found {thing} [under an old tree|between two rocks|in a dusty box|on a high shelf|in a bird's nest].",
        "And so {n} found {thing}. It was even [more beautiful|smaller|brighter|better] than {he} had dreamed.",
        "{N} looked one last time, and there it was: {thing}.",
    ],
};

pub const SEE: FamilyPhrases = FamilyPhrases {
    wish: &[
        "{N} wanted to see {thing}.",
        "More than anything, {n} wished to see {thing}.",
        "{N} had never seen {thing}, and {he} wanted to see it more than anything.",
        "Every evening, {n} thought of {thing}. {He} wanted to see it just once.",
        "But {n} had a dream. {He} wanted to see {thing}.",
    ],
    motive: &[
        "A [traveler|sailor|bird|letter|song] had told {him} about it.",
        "{He} had a picture of it on the wall, and {he} looked at it each night.",
        "\"I have been in this {place} all my life,\" {n} said. \"It is time to go.\"",
        "{His} [grandfather|grandmother|cousin|teacher] had seen it once and had never stopped talking about it.",
    ],
    start: &[
        "{Time}, {n} packed some {food} and set out.",
        "{Time}, {he} said goodbye to the {place} and began to walk.",
        "{Time}, {n} put on {his} [hat|boots|scarf|coat] and left [home|the {place}].",
        "{Time}, {n} started on the long road with {food} in {his} bag.",
    ],
    success: &[
        "After [two|three|four|five|seven] days, {n} saw {thing}: {view}.",
        "At last {n} came around a bend and saw {thing}, and {view}.",
        "And there it was. {N} saw {thing}, and {view}.",
        "Before the sun went down, {n} saw {thing}. {He} could not speak, for {view}.",
    ],
};

pub const MAKE: FamilyPhrases = FamilyPhrases {
    wish: &[
        "{N} wanted to {want}.",
        "More than anything, {n} wished to {want}.",
        "{N} had a plan: {he} wanted to {want}.",
        "One idea would not leave {n} alone. {He} wanted to {want}.",
        "For a long time, {n} had wanted to {want}.",
    ],
    motive: &[
        "It was to be a surprise for [the whole {place}|{his} family|an old friend|the children of the {place}].",
        "\"It does not have to be perfect,\" {he} said. \"It has to be mine.\"",
        "Nobody in the {place} had ever done that before.",
        "{He} had promised it to {his} [sister|brother|mother|father|grandmother], and a promise is a promise.",
    ],
    start: &[
        "{Time}, {n} gathered everything {he} needed and began.",
        "{Time}, {he} made a list, ate some {food}, and started to work.",
        "{Time}, {n} rolled up {his} sleeves and began.",
        "{Time}, {he} asked everyone for advice and then set to work.",
    ],
    success: &[
        "Together they worked until evening, and {n} {did}.",
        "{N} started again, slowly this time, and {he} {did}.",
        "By the end of the week, {n} {did}, and it was [wonderful|the best in the land|just right|finer than anyone had hoped].",
        "This time everything went well. {N} {did}, and everyone came to look.",
    ],
};

pub const BOND: FamilyPhrases = FamilyPhrases {
    wish: &[
        "{N} wanted to {want}.",
        "More than anything, {n} wished to {want}.",
        "{N} had only one wish: {he} wanted to {want}.",
        "But {n} was not quite happy. {He} wanted to {want}.",
        "All year long, {n} had wanted to {want}.",
    ],
    motive: &[
        "\"It is a small wish,\" {he} said, \"but it is my own.\"",
        "The others in the {place} only laughed at that, but {n} meant it.",
        "{He} thought about it when {he} woke up and when {he} fell asleep.",
        "{He} told the [stars|clouds|trees|river] about it every night.",
    ],
    start: &[
        "{Time}, {n} made up {his} mind to try.",
        "{Time}, {he} packed some {food} and left the {place}.",
        "{Time}, {n} knew that it was time to begin.",
        "{Time}, {he} put a little {food} in a bag and went on {his} way.",
    ],
    success: &[
        "And so {n} {did}.",
        "That very evening, {n} {did}.",
        "The next morning, {n} {did}. It was even better than {he} had hoped.",
        "In the end, {n} {did}, and {m} was there to see it.",
    ],
};

pub const LOW: &[&str] = &[
    "{N} sat down and [sighed|cried a little|did not know what to do|thought for a long time].",
    "\"[Oh dear|Oh no|What now|What shall I do]!\" said {n}.",
    "{N} felt very [sad|small|alone|tired|lost], but {he} did not [give up|go home|stop hoping].",
    "For a moment, {n} wanted to go back to the {place}.",
    "Almost anyone else would have [turned around|gone home|given up], but not {n}.",
];

pub const MEETINGS: &[&str] = &[
    "Then {whom} came by.",
    "Just then, {he} met {whom}.",
    "There {he} met {whom}, who [wanted to help|had seen everything|asked what was wrong|stopped to listen].",
    "[Luckily|By chance|As luck would have it], {whom} lived nearby.",
    "\"Can I help you?\" asked a voice. It was {whom}.",
    "{Whom} heard about it and came at once.",
    "\"Do not worry,\" said {whom}.",
];

pub const THANKS: &[&str] = &[
    "\"Thank you, my friend,\" said {n}.",
    "{N} thanked {m} with [a hug|a song|a basket of {food}|all {his} heart].",
    "\"I could not have done it without you,\" {n} told {m}.",
    "{M} smiled and said, \"That is what friends are for.\"",
];

pub const ENDINGS: &[&str] = &[
    "From that day on, {n} and {m} were the best of friends.",
    "{N} was {feeling}, and {he} never forgot that day.",
    "{N} went home to the {place} and was {feeling}.",
    "That night, {n} fell asleep with a smile. {He} was {feeling}.",
    "They ate {food} together and laughed until the stars came out.",
    "And if you go to that {place} today, you may still hear {n} tell the story.",
    "{N} was {feeling}, and {m} was {feeling} too.",
    "When {n} came back to the {place}, everyone wanted to hear the story.",
    "And they lived happily ever after.",
    "{N} and {m} shared some {food}, and {n} was {feeling}.",
    "After that, {n} visited {m} every [week|month|Sunday|spring|summer].",
    "The whole {place} had a feast with {food} and music, and {n} was {feeling}.",
];

pub const MORALS: &[&str] = &[
    "And that is how {n} learned that [a friend makes every road shorter|a small step is still a step|asking for help is not a shame].",
    "[Sometimes|Often|Now and then], all you need is [a good friend|a little courage|one more try|a kind word].",
    "{He} had learned that [nobody is too small for a big dream|good things take time|kindness always comes back].",
    "The end.",
    "For [those who keep trying find a way|a wish shared is a wish half granted|every dream begins with one step].",
];
