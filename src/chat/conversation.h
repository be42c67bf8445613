/* Conversations in the formats of public data sets, which the keys of their objects tell apart:
 *
 *   messages    {"messages": [{"role": ..., "content": ...}, ...]}
 *   sharegpt    {"conversations": [{"from": "human" | "gpt" | ..., "value": ...}, ...], "system": ...}
 *   completion  {"prompt": ..., "completion": ...}, texts or lists of messages
 *   alpaca      {"instruction": ..., "input": ..., "output": ...}
 *
 * Texts of a prompt and its completion are messages of the user and the assistant, as are Alpaca's
 * instruction, followed by an empty line and its input if there is one, and its output. A "system" text comes
 * first. Objects may have "tools", a list or its JSON, "documents" and "chat_template_kwargs"; other members
 * are ignored. Files are JSON lines or a JSON array (of tables, rows are made JSON lines), and all objects of
 * a file have the same format. */
#ifndef WEFT_CHAT_CONVERSATION_H
#define WEFT_CHAT_CONVERSATION_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef enum { CHAT_NONE, CHAT_MESSAGES, CHAT_SHAREGPT, CHAT_COMPLETION, CHAT_ALPACA } ChatFormat;
const char *chat_format_name(ChatFormat format);
/* By its keys; CHAT_NONE: not a conversation. */
ChatFormat chat_format_of(const json_t *object);
/* By the first object in the beginning of a file. False if it needs more of the file. */
bool chat_format_start(const char *text, size_t size, ChatFormat *ret_format);

/* {"messages", "tools" ...} for a template, with "completion", the number of messages of the prompt, if the
 * object says what that is. `format` is what the objects before had, or CHAT_NONE. */
MUST_USE Status chat_normalize(const json_t *object, ChatFormat *format, json_t **ret_conversation);

typedef Status (*ChatEach)(void *context, int64_t number, const json_t *conversation);
/* Calls `func` for each conversation of a file's contents, numbered from 1. Errors name `name` and the line,
 * or the number in an array. */
MUST_USE Status chat_read(const char *name, const char *text, size_t size, ChatFormat *format, ChatEach func,
                          void *context);

#endif
