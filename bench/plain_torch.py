"""GPT-2, BERT, Llama and Qwen3-MoE written by hand for speed, for compare_gpu.py: one matrix for queries, keys and values,
and one for both inputs of SwiGLU, scaled_dot_product_attention, vocabularies padded to a multiple of 128, and logits of
masked positions only. Experts run as grouped matmuls over rows sorted by expert.

Each model returns the loss of transformers' model of the same configuration; Qwen3-MoE adds a balancing loss per layer.
"""
import torch
from torch import nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, width, heads, inner, dropout, causal, eps):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.norm1, self.norm2 = nn.LayerNorm(width, eps), nn.LayerNorm(width, eps)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def attend(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, C // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=self.causal)
        return F.dropout(self.out(y.transpose(1, 2).reshape(B, T, C)), self.dropout)

    def mlp(self, x):
        hidden = F.gelu(self.up(x), approximate="tanh" if self.causal else "none")
        return F.dropout(self.down(hidden), self.dropout)

    def forward(self, x):
        if self.causal:
            x = x + self.attend(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.mlp(x))


def padded(vocab):
    return (vocab + 127) // 128 * 128


class Gpt2(nn.Module):
    def __init__(self, config, dropout):
        super().__init__()
        width = config.n_embd
        self.dropout = dropout
        self.tokens = nn.Embedding(padded(config.vocab_size), width)
        self.positions = nn.Embedding(config.n_positions, width)
        self.layers = nn.ModuleList(Layer(width, config.n_head, 4 * width, dropout, True, 1e-5)
                                    for _ in range(config.n_layer))
        self.norm = nn.LayerNorm(width)

    def forward(self, input_ids, labels):
        x = self.tokens(input_ids) + self.positions.weight[:input_ids.shape[1]]
        x = F.dropout(x, self.dropout)
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())


class Bert(nn.Module):
    """`picks`: the flat positions of masked tokens; None for the span head."""

    def __init__(self, config, dropout, span):
        super().__init__()
        width = config.hidden_size
        self.dropout, self.span = dropout, span
        self.tokens = nn.Embedding(padded(config.vocab_size), width)
        self.positions, self.types = nn.Embedding(512, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, 1e-12)
        self.layers = nn.ModuleList(Layer(width, config.num_attention_heads, config.intermediate_size, dropout, False,
                                          1e-12) for _ in range(config.num_hidden_layers))
        if span:
            self.head = nn.Linear(width, 2)
        else:
            self.pooler, self.next, self.transform = nn.Linear(width, width), nn.Linear(width, 2), nn.Linear(width, width)
            self.transform_norm, self.bias = nn.LayerNorm(width, 1e-12), nn.Parameter(torch.zeros(padded(config.vocab_size)))

    def forward(self, input_ids, token_type_ids, start_positions=None, end_positions=None, labels=None,
                next_sentence_label=None, picks=None):
        x = self.tokens(input_ids) + self.positions.weight[:input_ids.shape[1]] + self.types(token_type_ids)
        x = F.dropout(self.norm(x), self.dropout)
        for layer in self.layers:
            x = layer(x)
        if self.span:
            start, end = self.head(x).float().unbind(-1)
            return (F.cross_entropy(start, start_positions) + F.cross_entropy(end, end_positions)) / 2
        masked = self.transform_norm(F.gelu(self.transform(x.flatten(0, 1)[picks])))
        logits = F.linear(masked, self.tokens.weight, self.bias)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return F.cross_entropy(logits.float(), labels.flatten()[picks]) + \
            F.cross_entropy(self.next(pooled).float(), next_sentence_label)


class LlamaLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = width // self.heads
        self.norm1, self.norm2 = nn.RMSNorm(width, config.rms_norm_eps), nn.RMSNorm(width, config.rms_norm_eps)
        self.qkv = nn.Linear(width, (self.heads + 2 * self.kv_heads) * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)

    def attend(self, x, cos, sin):
        B, T, C = x.shape
        qkv = self.qkv(x).view(B, T, -1, self.size).transpose(1, 2)
        turned, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], 1)
        turned = self.normed(turned)
        left, right = turned.chunk(2, -1)
        turned = turned * cos + torch.cat((-right, left), -1) * sin
        q, k = turned.to(v.dtype).split([self.heads, self.kv_heads], 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        return self.out(y.transpose(1, 2).reshape(B, T, C))

    def normed(self, heads):
        return heads

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        gate, up = self.up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up), 0


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config.hidden_size, config.moe_intermediate_size
        self.count, self.top = config.num_experts, config.num_experts_per_tok
        self.router = nn.Linear(width, self.count, bias=False)
        self.up = nn.Parameter(torch.empty(self.count, 2 * inner, width).normal_(0, 0.02))
        self.down = nn.Parameter(torch.empty(self.count, width, inner).normal_(0, 0.02))

    def forward(self, x):
        """The result, and the balancing loss."""
        rows = x.flatten(0, 1)
        chances = self.router(rows).float().softmax(-1)
        weights, chosen = chances.topk(self.top, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).flatten()
        order = chosen.flatten().argsort(stable=True)
        counts = F.one_hot(chosen.flatten(), self.count).sum(0)
        ends, token = counts.cumsum(0).int(), order // self.top
        up, down = (w.bfloat16().transpose(1, 2) for w in (self.up, self.down))
        gate, other = torch._grouped_mm(rows[token].bfloat16(), up, offs=ends).chunk(2, -1)
        y = torch._grouped_mm(F.silu(gate) * other * weights[order, None].bfloat16(), down, offs=ends)
        y = torch.zeros_like(rows, dtype=y.dtype).index_add_(0, token, y)
        return y.view_as(x), self.count * (counts / len(rows) * chances.mean(0)).sum()


class ExpertLayer(LlamaLayer):
    def __init__(self, config):
        super().__init__(config)
        self.up = self.down = None
        self.experts = Experts(config)
        self.norm_q, self.norm_k = (nn.RMSNorm(self.size, config.rms_norm_eps) for _ in range(2))

    def normed(self, heads):
        q, k = heads.split([self.heads, self.kv_heads], 1)
        return torch.cat((self.norm_q(q), self.norm_k(k)), 1)

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        y, balance = self.experts(self.norm2(x))
        return x + y, balance


class Llama(nn.Module):
    def __init__(self, config, layer=LlamaLayer):
        super().__init__()
        width, size = config.hidden_size, config.hidden_size // config.num_attention_heads
        self.tokens = nn.Embedding(padded(config.vocab_size), width)
        self.layers = nn.ModuleList(layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(width, config.rms_norm_eps)
        self.head = nn.Linear(width, padded(config.vocab_size), bias=False)
        if config.tie_word_embeddings:
            self.head.weight = self.tokens.weight
        angles = torch.outer(torch.arange(config.max_position_embeddings).float(),
                             10000 ** (-torch.arange(0, size, 2).float() / size)).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, input_ids, labels):
        T, balance = input_ids.shape[1], 0
        x = self.tokens(input_ids)
        for layer in self.layers:
            x, more = layer(x, self.cos[:T], self.sin[:T])
            balance = balance + more
        logits = self.head(self.norm(x))
        loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return loss + 0.001 / len(self.layers) * balance


def plain_model(kind, config, dropout):
    if kind in ("llama", "qwen3-moe"):
        return Llama(config, LlamaLayer if kind == "llama" else ExpertLayer)
    return Gpt2(config, dropout) if kind == "gpt2" else Bert(config, dropout, kind == "bert-span")
