/* Printing generated text. */
#include "cli/generate.h"

#include <string.h>

#include "base/memory.h"
#include "cli/show.h"

/* ---- printing ---- */

Printer printer_of(FILE *out) {
    return (Printer){.out = out, .terminal = generate_to_terminal(out)};
}

/* An undertrained model may generate any byte; control characters are replaced on a terminal. */
void print_text(Printer *printer, const char *text, size_t size) {
    for (size_t i = printer->printed; i < size; i++) {
        unsigned char byte = (unsigned char)text[i];
        bool control = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F;
        if (control && printer->terminal)
            fputs("\xEF\xBF\xBD", printer->out);
        else
            putc(byte, printer->out);
    }
    printer->printed = size;
    printer->started = true;
}

void print_number(Printer *printer, int32_t token) {
    fprintf(printer->out, printer->started ? " %d" : "%d", (int)token);
    printer->started = true;
}

void print_end(const Printer *printer) {
    if (printer->started) putc('\n', printer->out);
}

/* ---- tokens as they are sampled ---- */

void writing_done(Writing *writing) {
    for (int64_t i = 0; writing->texts && i < writing->count; i++) text_stream_done(&writing->texts[i]);
    free(writing->texts);
}

Status writing_init(Writing *writing) {
    if (!writing->tokenizer) return OK;
    TRY(mem_new((size_t)writing->count, sizeof *writing->texts, &writing->texts));
    for (int64_t i = 0; i < writing->count; i++) {
        const Prompt *prompt = &writing->prompts[i];
        TRY(text_stream_init(&writing->texts[i], writing->tokenizer, writing->stops, writing->skip_special));
        TRY(text_stream_prompt(&writing->texts[i], prompt->ids, prompt->count));
    }
    return OK;
}

static void stream_token(Writing *writing, int32_t token) {
    Printer *printer = &writing->printer;
    const Prompt *prompt = writing->prompts;
    if (writing->texts) {
        print_text(printer, writing->texts->text, writing->texts->final_size);
        return;
    }
    if (!printer->started)
        for (int64_t i = 0; i < prompt->count; i++) print_number(printer, prompt->ids[i]);
    print_number(printer, token);
}

Status writing_take(void *context, int64_t prompt, int32_t token, bool *ret_stop) {
    Writing *writing = context;
    if (writing->texts) {
        TRY(text_stream_push(&writing->texts[prompt], token));
        *ret_stop = writing->texts[prompt].stop >= 0;
    }
    if (!writing->streams) return OK;
    stream_token(writing, token);
    if (fflush(writing->printer.out) != 0 || ferror(writing->printer.out)) return stdout_failed();
    return OK;
}

/* Decodes a beam-search candidate from its beginning, since beams are reordered at every step. */
Status writing_check_stop(void *context, const int32_t *ids, int64_t prompt_count, int64_t count,
                          bool *ret_stop) {
    const Writing *writing = context;
    CLEANUP(text_stream_done) TextStream text = {0};
    TRY(text_stream_init(&text, writing->tokenizer, writing->stops, writing->skip_special));
    TRY(text_stream_prompt(&text, ids, prompt_count));
    for (int64_t i = prompt_count; i < count && text.stop < 0; i++) TRY(text_stream_push(&text, ids[i]));
    *ret_stop = text.stop >= 0;
    return OK;
}

Status writing_end(Writing *writing) {
    for (int64_t i = 0; writing->texts && i < writing->count; i++) TRY(text_stream_end(&writing->texts[i]));
    if (writing->streams && writing->texts && writing->printer.started)
        print_text(&writing->printer, writing->texts->text, writing->texts->final_size);
    return OK;
}
