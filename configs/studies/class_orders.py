"""Five class orders with five methods, CIFAR-100 Base0 Inc10: mean and spread over the orders."""

from configs import cifar_b0i10, studies
from memo_jax.study import Case, declare, product

ORDERS = {"paper": (10, 20, 30, 40, 50), "digits": (1, 1993)}


def get_config(scale="paper"):
    config = studies.start(scale, cifar_b0i10)
    orders = [
        Case(f"order{seed}", {"protocol.class_order_seed": seed}, {"class_order": seed})
        for seed in ORDERS[scale]
    ]
    return declare(
        config,
        kind="class_orders",
        title="Five methods over class orders",
        scale=scale,
        cases=product(orders, studies.FEW if scale == studies.DIGITS else studies.METHODS),
    )
