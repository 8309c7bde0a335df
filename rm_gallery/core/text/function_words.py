"""Short, frequent words by which languages that share a script are told apart, and letters that few of them use."""

from __future__ import annotations

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
