/* The chat template of a checkpoint: conversations as text, and which of the text the assistant wrote.
 *
 * A conversation is a JSON object as chat/conversation.h makes it: "messages", each with a role and a
 * content, and optionally "tools", "documents" and "chat_template_kwargs", which templates see as in
 * transformers. */
#ifndef WEFT_CHAT_TEMPLATE_H
#define WEFT_CHAT_TEMPLATE_H

#include "chat/jinja.h"

#define CHAT_TEMPLATE_FILE "chat_template.jinja"

typedef struct ChatTemplate ChatTemplate;

/* Of a checkpoint or tokenizer directory: chat_template.jinja, else chat_template in tokenizer_config.json.
 * If that lists several, conversations with tools take the one called tool_use. *ret_template is NULL if
 * there is none. */
MUST_USE Status chat_template_load(ChatTemplate **ret_template, const char *dir);
/* The template in a file of its own, with the special tokens of a directory (NULL: without). */
MUST_USE Status chat_template_read(ChatTemplate **ret_template, const char *file, const char *dir);
void chat_template_free(ChatTemplate *template);
DEFINE_FREEP(ChatTemplate, chat_template)
/* The file that the template is in. */
const char *chat_template_file(const ChatTemplate *template);
/* The contents of a file with nothing but the template; NULL: it is part of another file. */
const char *chat_template_text(const ChatTemplate *template);

/* The time that templates see in training and when describing data, so that text does not depend on the day:
 * 2024-07-26, the day that Llama 3's templates name when they are not told. */
#define CHAT_FIXED_TIME INT64_C(1721952000)

/* The text of a conversation; `prompt`: with the beginning of the assistant's next turn. The caller frees
 * *ret_text, which is NUL-terminated. */
MUST_USE Status chat_render(const ChatTemplate *template, const json_t *conversation, bool prompt,
                            int64_t now, char **ret_text, size_t *ret_size);

typedef enum {
    LOSS_ON_ASSISTANT,  /* everything that the assistant wrote */
    LOSS_ON_COMPLETION, /* its last turn, or what is marked as the completion */
    LOSS_ON_ALL
} LossOn;
extern const char *const loss_on_names[]; /* NULL-terminated */

/* The text, with the bytes to train on, in order. They are what generation blocks print if the template has
 * some. Otherwise, a turn is what the text has beyond that of the messages before it with the beginning of an
 * assistant's turn; it includes the mark of its end. A template that writes earlier turns differently from
 * the last one (Qwen3 drops their thoughts) is searched for each turn's content; if that is not found either,
 * it fails. */
MUST_USE Status chat_render_marked(const ChatTemplate *template, const json_t *conversation, LossOn loss_on,
                                   JinjaOutput *ret_output);

#endif
