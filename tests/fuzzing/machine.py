"""Hypothesis' state machine: rules draw steps, the world runs them."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from fuzzing import draws, ops, ops_compiled, ops_index
from fuzzing.draws import Draw
from fuzzing.world import World


class Variant:
    """What a run does besides ordinary steps."""

    def __init__(self, streams=False, cards=1, layouts=False, compiler=False):
        self.streams, self.cards, self.layouts, self.compiler = streams, cards, layouts, compiler


VARIANTS = {
    "eager": Variant(),
    "layouts": Variant(layouts=True),
    "streams": Variant(streams=True),
    "cards": Variant(cards=2),
    "compiled": Variant(layouts=True, compiler=True),
}

STEPS = {
    "in_place": ops.in_place,
    "in_place_again": ops.in_place,
    "binary": ops.binary,
    "unary": ops.unary,
    "copy": ops.copy,
    "reduction": ops.reduction,
    "product": ops.product,
    "rearrange": ops.rearrange,
    "set_and_resize": ops.set_and_resize,
    "read": ops_index.read,
    "write": ops_index.write,
    "backward": ops_compiled.backward,
}


def machine(variant, failures):
    """A state machine, whose failures and history are kept."""
    history = failures.history

    class Machine(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.world = None
            self.failed = False

        @initialize(data=st.data())
        def start(self, data):
            history.begin()
            self.world = World(None, history.add, variant.streams, variant.cards)
            if variant.compiler:
                self.world.compiled_gradients = 3
            self.base(data)

        def step(self, data, work):
            d = Draw(data)
            self.world.choose = d.choose
            self.failed = True  # until it is done
            with failures:
                work(d, self.world)
            self.failed = False

        @rule(data=st.data())
        def base(self, data):
            by_hand = variant.layouts and Draw(data).chance(2)
            self.step(data, draws.new_base_in_layout if by_hand else draws.new_base)

        @precondition(lambda self: self.world and self.world.device)
        @rule(data=st.data())
        def view(self, data):
            self.step(data, draws.new_view)

        @precondition(lambda self: self.world and len(self.world.device) > 1)
        @rule(data=st.data())
        def drop(self, data):
            self.step(data, lambda d, world: world.drop(d.choose(world.names())))

        @precondition(lambda self: variant.compiler and self.world)
        @rule(data=st.data())
        def compiled(self, data):
            self.step(data, ops_compiled.compiled)

        @precondition(lambda self: variant.streams and self.world)
        @rule(data=st.data())
        def settle(self, data):
            self.step(data, lambda d, world: world.settle() if d.chance(3) else world.nap())

        def teardown(self):
            if self.world and variant.streams and not self.failed:
                with failures:
                    self.world.settle()

    for name, work in STEPS.items():
        setattr(Machine, name, _rule(name, work))
    return Machine


def _rule(name, work):
    def step(self, data):
        self.step(data, work)

    step.__name__ = name
    ready = precondition(lambda self: bool(self.world and self.world.device))
    return ready(rule(data=st.data())(step))
