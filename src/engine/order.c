/* Three cursors. */
#include "engine/order.h"

static const dmuon_order_item NOTHING = {-1, 0};

dmuon_order dmuon_order_begin(DMuonOrder order, int group_count) {
  return (dmuon_order){.order = order,
                       .group_count = group_count,
                       .backward_next = group_count - 1,
                       .reduce_next = group_count - 1};
}

dmuon_order_item dmuon_order_fetch(dmuon_order *order, int group) {
  if (order->order == DMUON_ORDER_PROGRAM) return NOTHING;
  if (!order->backward_has_begun)
    return order->forward_next <= group ? (dmuon_order_item){order->forward_next++, 0} : NOTHING;
  return order->backward_next >= group ? (dmuon_order_item){order->backward_next--, 1} : NOTHING;
}

dmuon_order_item dmuon_order_ahead(dmuon_order *order, int group, int depth) {
  if (order->order == DMUON_ORDER_PROGRAM) return NOTHING;
  if (!order->backward_has_begun) {
    const int last = group + depth < order->group_count ? group + depth : order->group_count - 1;
    const int next = order->forward_next;
    return next > group && next <= last ? (dmuon_order_item){next, 0} : NOTHING;
  }
  const int last = group - depth > 0 ? group - depth : 0;
  const int next = order->backward_next;
  return next < group && next >= last ? (dmuon_order_item){next, 1} : NOTHING;
}

void dmuon_order_turn(dmuon_order *order) {
  order->backward_has_begun = 1;
}

int dmuon_order_reduce(dmuon_order *order, int group) {
  return order->reduce_next >= group ? order->reduce_next-- : -1;
}

int dmuon_order_reduce_before(int group, int depth) {
  return group + depth + 1;
}

int dmuon_order_fetch_before(int group, int depth) {
  return group > depth ? group - depth : 0;
}

int dmuon_order_fetch_due(const dmuon_order *order, int group) {
  const int is_due = order->order == DMUON_ORDER_REGISTERED && order->backward_has_begun &&
                     order->backward_next >= group;
  return is_due ? order->backward_next : -1;
}

int dmuon_order_may_fetch(const dmuon_order *order, int group, int depth) {
  return order->reduce_next < dmuon_order_reduce_before(group, depth);
}
