"""Twenty small databases about everyday things: two tables each, with rows.

A domain has a parent table (label and category) and a child table (label, category, decimal,
whole number, parent), so that the same kinds of question can be asked of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

CHILD_ROWS = 5


@dataclass(frozen=True)
class Table:
    """A table's words: its name, what one row is called, several rows, and its columns."""

    name: str
    one: str
    many: str
    label: str
    category: str


@dataclass(frozen=True)
class Domain:
    """Two tables and the values that fill them.

    Attributes:
        parent: the table that the child refers to; its key is `<one>_id`.
        child: the table that most questions are about.
        decimal: a column of decimals (two places) and its range.
        whole: a column of whole numbers and its range.
    """

    parent: Table
    child: Table
    parent_labels: tuple[str, ...]
    parent_categories: tuple[str, ...]
    child_labels: tuple[str, ...]
    child_categories: tuple[str, ...]
    decimal: tuple[str, int, int]
    whole: tuple[str, int, int]

    @property
    def link(self) -> str:
        """The child's column that refers to the parent."""
        return f"{self.parent.one}_id"


def _domain(parent: str, child: str, values: str, decimal: str, whole: str) -> Domain:
    """A domain from its short form: words by `/`, lists by `|` and `,`."""
    lists = [tuple(item.strip() for item in part.split(",")) for part in values.split("|")]
    parent_labels, parent_categories, child_labels, child_categories = lists
    name, low, high = decimal.split()
    whole_name, whole_low, whole_high = whole.split()
    return Domain(
        Table(*parent.split("/")),
        Table(*child.split("/")),
        parent_labels,
        parent_categories,
        child_labels,
        child_categories,
        (name, int(low), int(high)),
        (whole_name, int(whole_low), int(whole_high)),
    )


DOMAINS = (
    _domain(
        "authors/author/authors/name/country",
        "books/book/books/title/genre",
        "Ada Lind,Bo Chen,Carla Diaz,Dan Obi|Norway,China,Spain,Kenya|"
        "Salt Road,Night Ferry,Paper Moon,Cold Harbour,Green Door|crime,poetry,travel",
        "price 5 40",
        "pages 90 700",
    ),
    _domain(
        "airlines/airline/airlines/name/hub",
        "flights/flight/flights/code/destination",
        "Skyline,Polar Air,Sunjet,Delta Wings|Oslo,Rome,Lima,Cairo|"
        "SK101,SK202,PA310,PA420,SJ515|Paris,Tokyo,Madrid",
        "fare 40 900",
        "seats 60 320",
    ),
    _domain(
        "wards/ward/wards/name/floor",
        "patients/patient/patients/name/condition",
        "Maple,Cedar,Birch,Willow|first,second,third,fourth|"
        "Ann Roe,Ben Sol,Cy Tan,Di Moss,Ed Park|asthma,fracture,flu",
        "temperature 36 40",
        "age 3 90",
    ),
    _domain(
        "teachers/teacher/teachers/name/subject",
        "students/student/students/name/house",
        "Mr Hall,Ms Vega,Dr Kim,Mrs Poe|maths,art,physics,music|Ivy,Jon,Kai,Lea,Max|red,blue,green",
        "score 40 100",
        "absences 0 30",
    ),
    _domain(
        "farms/farm/farms/name/region",
        "crops/crop/crops/name/season",
        "Hilltop,Riverside,Oakfield,Stonegate|north,south,east,west|"
        "wheat,barley,maize,carrots,onions|spring,summer,autumn",
        "yield_tonnes 2 90",
        "hectares 1 200",
    ),
    _domain(
        "museums/museum/museums/name/city",
        "exhibits/exhibit/exhibits/title/period",
        "Old Mint,Harbour Hall,Glass House,Tram Depot|Bergen,Porto,Ghent,Turin|"
        "Gold Mask,Stone Lion,Silk Map,Iron Bell,Clay Horse|ancient,medieval,modern",
        "insured_value 10 800",
        "visitors 100 9000",
    ),
    _domain(
        "restaurants/restaurant/restaurants/name/cuisine",
        "dishes/dish/dishes/name/course",
        "Blue Fig,Red Lotus,Casa Luna,The Mill|greek,thai,italian,british|"
        "moussaka,green curry,risotto,pea soup,lemon tart|starter,main,dessert",
        "price 4 35",
        "calories 120 1400",
    ),
    _domain(
        "directors/director/directors/name/country",
        "films/film/films/title/genre",
        "Eva Holm,Raj Patel,Luc Roy,Mia Sato|Denmark,India,France,Japan|"
        "The Well,Two Suns,Iron Sky,Slow Rain,Gold Coast|drama,comedy,thriller",
        "rating 1 10",
        "minutes 75 190",
    ),
    _domain(
        "keepers/keeper/keepers/name/section",
        "animals/animal/animals/name/species",
        "Nora,Omar,Pia,Quin|savanna,arctic,jungle,aquarium|"
        "Zuri,Boris,Kiko,Luna,Milo|lion,seal,parrot",
        "weight_kg 1 250",
        "age 1 40",
    ),
    _domain(
        "ports/port/ports/name/country",
        "ships/ship/ships/name/kind",
        "Aalborg,Bilbao,Constanta,Dakar|Denmark,Spain,Romania,Senegal|"
        "Albatross,Blue Star,Coral,Dawn,Eagle|tanker,ferry,trawler",
        "length_m 20 330",
        "crew 4 90",
    ),
    _domain(
        "teams/team/teams/name/city",
        "players/player/players/name/position",
        "Hawks,Wolves,Bears,Otters|Leeds,Lyon,Graz,Brno|"
        "Abel,Bruno,Cruz,Dario,Elias|goalkeeper,defender,striker",
        "salary 20 900",
        "goals 0 40",
    ),
    _domain(
        "stations/station/stations/name/region",
        "readings/reading/readings/code/sky",
        "Summit,Valley,Coast,Lake|north,south,east,west|R1,R2,R3,R4,R5|clear,cloudy,rain",
        "rainfall_mm 0 60",
        "humidity 20 100",
    ),
    _domain(
        "operators/operator/operators/name/country",
        "plants/plant/plants/name/fuel",
        "Voltana,Gridco,Lumen,Ampere|Chile,Canada,Poland,Ghana|"
        "Ridge One,Bay Two,Moor Three,Fen Four,Dune Five|solar,wind,hydro",
        "capacity_mw 10 900",
        "opened_year 1970 2024",
    ),
    _domain(
        "artists/artist/artists/name/style",
        "songs/song/songs/title/mood",
        "The Larks,Mono Kid,Vera Blue,Tin Drum|folk,electro,jazz,rock|"
        "Amber,Blackbird,Cinder,Drift,Ember|happy,sad,calm",
        "minutes 1 9",
        "plays 100 90000",
    ),
    _domain(
        "agents/agent/agents/name/branch",
        "houses/house/houses/address/style",
        "Ruth,Sven,Tomas,Uma|centre,harbour,hills,station|"
        "1 Elm Row,2 Fir Lane,3 Ash Way,4 Oak Hill,5 Yew Walk|cottage,flat,villa",
        "rent 300 4000",
        "rooms 1 12",
    ),
    _domain(
        "hotels/hotel/hotels/name/town",
        "bookings/booking/bookings/guest/room_type",
        "Grand,Seaview,Alpine,Central|Nice,Split,Davos,Vienna|"
        "Amara,Bela,Ciro,Dora,Emil|single,double,suite",
        "total 60 1500",
        "nights 1 21",
    ),
    _domain(
        "mines/mine/mines/name/country",
        "shipments/shipment/shipments/code/mineral",
        "Deep Creek,Iron Knob,Red Hill,Salt Pan|Peru,Australia,Mali,Namibia|"
        "S10,S11,S12,S13,S14|copper,gold,zinc",
        "tonnes 5 700",
        "days_late 0 25",
    ),
    _domain(
        "branches/branch/branches/name/city",
        "loans/loan/loans/borrower/purpose",
        "High Street,Market,Quay,Park|Cork,Galway,Derry,Sligo|"
        "Aoife,Brendan,Ciara,Declan,Eoin|car,home,study",
        "amount 500 9000",
        "months 6 120",
    ),
    _domain(
        "rockets/rocket/rockets/name/builder",
        "missions/mission/missions/name/orbit",
        "Comet,Heron,Titan,Zephyr|Astra,Nordlift,Orbex,Helio|"
        "Alpha,Bravo,Cosmo,Delta,Echo|low,polar,lunar",
        "payload_t 1 60",
        "launch_year 1995 2026",
    ),
    _domain(
        "bakers/baker/bakers/name/shop",
        "cakes/cake/cakes/name/flavour",
        "Hugo,Ines,Jules,Klara|Corner,Station,Arcade,Square|"
        "Opal,Pearl,Queen,Rosa,Saffron|vanilla,cherry,hazelnut",
        "price 3 60",
        "slices 4 24",
    ),
)


def fill(domain: Domain, random: Random) -> tuple[list[tuple], list[tuple]]:
    """Rows of the parent and of the child. Numbers differ from row to row, so no order is a tie."""
    parents = [
        (number, label, category)
        for number, (label, category) in enumerate(
            zip(domain.parent_labels, domain.parent_categories, strict=True), 1
        )
    ]
    _, low, high = domain.decimal
    decimals = random.sample(range(low * 100, high * 100), CHILD_ROWS)
    _, low, high = domain.whole
    wholes = random.sample(range(low, high + 1), CHILD_ROWS)
    categories = [domain.child_categories[i % 3] for i in range(CHILD_ROWS)]
    random.shuffle(categories)
    children = [
        (
            number,
            domain.child_labels[number - 1],
            categories[number - 1],
            decimals[number - 1] / 100,
            wholes[number - 1],
            1 + (number - 1) % 3,  # the fourth parent has no child: outer joins show it
        )
        for number in range(1, CHILD_ROWS + 1)
    ]
    return parents, children
