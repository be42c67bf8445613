/* Executes the statements of a template. Scopes are frames: a loop's iteration, a macro call, a with and a
 * generation block have their own, an if has not. */
#include "chat/jinja_internal.h"

#include <stdlib.h>

#include "base/memory.h"

enum { DEPTH_LIMIT = 600, STEP_LIMIT = 50 << 20, MEMORY_LIMIT = 512 << 20 };

Status run_enter(Run *run, const Node *at) {
    if (++run->depth > DEPTH_LIMIT) return RUN_FAILED(run, at, "calls are nested too deeply");
    if (++run->steps > STEP_LIMIT)
        return RUN_FAILED(run, at, "the template takes more than %d steps", STEP_LIMIT);
    return OK;
}

/* ---- variables ---- */

Status frame_new(Run *run, Frame *parent, Frame **ret_frame) {
    Frame *frame = NULL;
    TRY(region_take(&run->region, 1, sizeof *frame, &frame));
    frame->parent = parent;
    *ret_frame = frame;
    return OK;
}

Status frame_set(Run *run, Frame *frame, Text name, Value value) {
    for (size_t i = 0; i < frame->count; i++) {
        if (!text_equal(frame->variable[i].name, name)) continue;
        frame->variable[i].value = value;
        return OK;
    }
    if (frame->count == frame->capacity) {
        Variable *grown = NULL;
        frame->capacity = 2 * frame->capacity + 4;
        TRY(region_take(&run->region, frame->capacity, sizeof *grown, &grown));
        if (frame->count) memcpy(grown, frame->variable, frame->count * sizeof *grown);
        frame->variable = grown;
    }
    frame->variable[frame->count++] = (Variable){name, value};
    return OK;
}

static Status assign_tuple(Run *run, Frame *frame, const Node *target, Value value) {
    List items = {0};
    bool iterable;
    TRY(value_items(&run->region, value, &items, &iterable));
    if (!iterable)
        return RUN_FAILED(run, target, "%s cannot be assigned to several names", value_type(value));
    if (items.count != target->count)
        return RUN_FAILED(run, target, "%zu values are assigned to %zu names", items.count, target->count);
    for (size_t i = 0; i < items.count; i++) TRY(run_assign(run, frame, target->item[i], items.item[i]));
    return OK;
}

Status run_assign(Run *run, Frame *frame, const Node *target, Value value) {
    if (target->kind == NODE_TUPLE) return assign_tuple(run, frame, target, value);
    if (target->kind == NODE_NAME) return frame_set(run, frame, target->name, value);
    Value space;
    TRY(evaluate(run, frame, target->a, &space));
    if (space.kind != V_NAMESPACE)
        return RUN_FAILED(run, target, "'%.*s' is %s; only attributes of a namespace can be set",
                          (int)target->a->name.size, target->a->name.data, value_type(space));
    return dict_put(&run->region, space.dict, value_text(target->name), value);
}

/* ---- output ---- */

Status run_capture(Run *run, Frame *frame, const Node *body, Value *ret_text) {
    Writer text = {.region = &run->region}, *before = run->out;
    run->out = &text;
    TRY(run_body(run, frame, body));
    run->out = before;
    *ret_text = writer_value(&text);
    return OK;
}

/* What a body prints, after the filters of its block. */
static Status capture_filtered(Run *run, Frame *frame, const Node *body, const Node *filters,
                               Value *ret_value) {
    Frame *inner = NULL;
    Value before = run->captured;
    TRY(frame_new(run, frame, &inner));
    TRY(run_capture(run, inner, body, &run->captured));
    *ret_value = run->captured;
    TRY(evaluate(run, frame, filters, ret_value));
    run->captured = before;
    return OK;
}

static Status print_value(Run *run, const Node *at, Value value) {
    Text text;
    TRY(value_to_text(run, at, value, &text));
    return writer_add(run->out, text);
}

/* Marks in text that is captured first have no position in the output. */
static Status run_generation(Run *run, Frame *frame, const Node *node) {
    Frame *inner = NULL;
    size_t start = run->out->size;
    TRY(frame_new(run, frame, &inner));
    TRY(run_body(run, inner, node->b));
    if (run->out != run->main) return OK;
    TRY(mem_grow(&run->marks, &run->mark_capacity, run->mark_count + 1, sizeof *run->marks));
    run->marks[run->mark_count++] = (JinjaSpan){start, run->out->size};
    return OK;
}

/* ---- statements ---- */

static Status run_if(Run *run, Frame *frame, const Node *node) {
    Value condition;
    for (; node && node->kind == NODE_IF; node = node->c) {
        TRY(evaluate(run, frame, node->a, &condition));
        if (value_true(condition)) return run_body(run, frame, node->b);
    }
    return node ? run_body(run, frame, node) : OK;
}

/* The items of a loop that fulfil its condition. */
static Status find_items(Run *run, Frame *frame, const Node *node, List *ret_items) {
    List all = {0}, kept = {0};
    Value iterable, condition;
    bool can;
    TRY(evaluate(run, frame, node->b, &iterable));
    TRY(value_items(&run->region, iterable, &all, &can));
    if (!can) return RUN_FAILED(run, node, "%s cannot be looped over", value_type(iterable));
    for (size_t i = 0; node->c && i < all.count; i++) {
        Frame *inner = NULL;
        TRY(frame_new(run, frame, &inner));
        TRY(run_assign(run, inner, node->a, all.item[i]));
        TRY(evaluate(run, inner, node->c, &condition));
        if (value_true(condition)) TRY(list_add(&run->region, &kept, all.item[i]));
    }
    *ret_items = node->c ? kept : all;
    return OK;
}

static Status run_for(Run *run, Frame *frame, const Node *node) {
    Loop *loop = NULL;
    TRY(region_take(&run->region, 1, sizeof *loop, &loop));
    TRY(find_items(run, frame, node, &loop->items));
    for (loop->index = 0; loop->index < loop->items.count; loop->index++) {
        Frame *inner = NULL;
        TRY(frame_new(run, frame, &inner));
        TRY(frame_set(run, inner, TEXT("loop"), (Value){.kind = V_LOOP, .loop = loop}));
        TRY(run_assign(run, inner, node->a, loop->items.item[loop->index]));
        TRY(run_body(run, inner, node->item[0]));
        Flow flow = run->flow;
        run->flow = FLOW_NEXT;
        if (flow == FLOW_BREAK) return OK;
    }
    if (loop->items.count || !node->item[1]) return OK;
    Frame *inner = NULL;
    TRY(frame_new(run, frame, &inner));
    return run_body(run, inner, node->item[1]);
}

static Status run_macro(Run *run, Frame *frame, const Node *node) {
    Value macro;
    TRY(callable_new(run, (Callable){.name = node->name, .macro = node, .frame = frame}, &macro));
    return frame_set(run, frame, node->name, macro);
}

/* Calls with the body as caller(). */
static Status run_call_block(Run *run, Frame *frame, const Node *node) {
    Value caller, function, result;
    Frame *inner = NULL;
    TRY(callable_new(run, (Callable){.name = node->b->name, .macro = node->b, .frame = frame}, &caller));
    TRY(frame_new(run, frame, &inner));
    TRY(frame_set(run, inner, TEXT(" caller"), caller));
    TRY(evaluate(run, frame, node->a->a, &function));
    if (function.kind != V_CALLABLE || !function.callable->macro)
        return RUN_FAILED(run, node, "a call block needs a macro, not %s", value_type(function));
    TRY(evaluate_call(run, inner, node->a, &result));
    return print_value(run, node, result);
}

static Status run_with(Run *run, Frame *frame, const Node *node) {
    Frame *inner = NULL;
    Value value;
    TRY(frame_new(run, frame, &inner));
    for (size_t i = 0; i < node->count; i++) {
        TRY(evaluate(run, frame, node->item[i]->b, &value));
        TRY(run_assign(run, inner, node->item[i]->a, value));
    }
    return run_body(run, inner, node->b);
}

static Status run_statement(Run *run, Frame *frame, const Node *node) {
    Value value;
    switch (node->kind) {
    case NODE_DATA: return writer_add(run->out, node->value.text);
    case NODE_OUTPUT: TRY(evaluate(run, frame, node->a, &value)); return print_value(run, node, value);
    case NODE_IF: return run_if(run, frame, node);
    case NODE_FOR: return run_for(run, frame, node);
    case NODE_SET: TRY(evaluate(run, frame, node->b, &value)); return run_assign(run, frame, node->a, value);
    case NODE_SET_BLOCK:
        TRY(capture_filtered(run, frame, node->b, node->c, &value));
        return run_assign(run, frame, node->a, value);
    case NODE_FILTER_BLOCK:
        TRY(capture_filtered(run, frame, node->b, node->a, &value));
        return print_value(run, node, value);
    case NODE_MACRO: return run_macro(run, frame, node);
    case NODE_CALL_BLOCK: return run_call_block(run, frame, node);
    case NODE_WITH: return run_with(run, frame, node);
    case NODE_GENERATION: return run_generation(run, frame, node);
    case NODE_BREAK: run->flow = FLOW_BREAK; return OK;
    case NODE_CONTINUE: run->flow = FLOW_CONTINUE; return OK;
    default: return RUN_FAILED(run, node, "internal: not a statement");
    }
}

Status run_body(Run *run, Frame *frame, const Node *body) {
    for (size_t i = 0; i < body->count && run->flow == FLOW_NEXT; i++) {
        TRY(run_enter(run, body->item[i]));
        TRY(run_statement(run, frame, body->item[i]));
        run->depth--;
    }
    return OK;
}

/* ---- the whole template ---- */

static Status set_globals(Run *run, Frame *globals, const json_t *variables) {
    const char *key;
    json_t *json;
    Value value;
    for (const FunctionRow *row = global_functions; row->name; row++) {
        TRY(callable_new(run, (Callable){.name = text_of_string(row->name), .row = row}, &value));
        TRY(frame_set(run, globals, text_of_string(row->name), value));
    }
    json_object_foreach((json_t *)variables, key, json) {
        TRY(value_from_json(&run->region, json, &value));
        TRY(frame_set(run, globals, text_of_string(key), value));
    }
    return OK;
}

static void run_done(Run *run) {
    region_done(&run->region);
    free(run->marks);
}

Status jinja_render(const Jinja *template, const json_t *variables, int64_t now, JinjaOutput *ret_output) {
    CLEANUP(run_done) Run run = {.template = template, .now = now, .region.limit = MEMORY_LIMIT};
    CLEANUP(jinja_output_done) JinjaOutput output = {0};
    Writer out = {.region = &run.region};
    Frame *globals = NULL, *frame = NULL;
    run.out = run.main = &out;
    TRY(frame_new(&run, NULL, &globals));
    TRY(frame_new(&run, globals, &frame));
    TRY(set_globals(&run, globals, variables));
    Status status = run_body(&run, frame, template->root);
    if (status) return status;
    TRY(mem_new(out.size + 1, 1, &output.text));
    if (out.size) memcpy(output.text, out.data, out.size);
    output.size = out.size;
    output.marks = run.marks;
    output.mark_count = run.mark_count;
    run.marks = NULL;
    return MOVE(ret_output, output);
}

void jinja_output_done(JinjaOutput *output) {
    free(output->text);
    free(output->marks);
    *output = (JinjaOutput){0};
}
