// holds: api-reference-prompts

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { ChatMessage, ToolCall } from "@heddle/contracts/engine";
import { describe, expect, it } from "vitest";
import { ChatTemplate } from "./chat-template.ts";

interface ReferenceMessage extends Pick<ChatMessage, "role" | "content"> {
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly (Omit<ToolCall, "function"> & {
    readonly function: { readonly name: string; readonly arguments: object };
  })[];
}

interface Reference {
  readonly tools: readonly {
    readonly function: {
      readonly name: string;
      readonly description: string;
      readonly parameters: object;
    };
  }[];
  readonly conversations: readonly {
    readonly template: string;
    readonly tools: boolean;
    readonly messages: readonly ReferenceMessage[];
    readonly sha256: string;
  }[];
}

// Written by reference-prompts.py with Python's jinja2, in the environment of transformers.
const templates: Readonly<Record<string, string>> = read("reference-templates.json");
const reference: Reference = read("reference-prompts.json");
const tools = reference.tools.map(({ function: { name, description, parameters } }) => ({
  name,
  description,
  parameters: JSON.stringify(parameters),
}));

function read<Content>(name: string): Content {
  return JSON.parse(readFileSync(join(import.meta.dirname, "testdata", name), "utf8")) as Content;
}

function toMessage({ role, content, tool_call_id, tool_calls }: ReferenceMessage): ChatMessage {
  const toolCalls = tool_calls?.map(({ function: { name, arguments: object }, ...call }) => ({
    ...call,
    function: { name, arguments: JSON.stringify(object) },
  }));
  return {
    role,
    content,
    ...(tool_call_id === undefined ? {} : { toolCallId: tool_call_id }),
    ...(toolCalls === undefined ? {} : { toolCalls }),
  };
}

describe("prompts of 200 conversations are those of the reference implementation:", () => {
  it.each(Object.entries(templates))("%s", (name, source) => {
    const now = () => new Date("2026-03-05T14:07:09Z");
    const template = new ChatTemplate(source, { bos: "<s>", eos: "</s>" }, now);
    const own = reference.conversations.filter((conversation) => conversation.template === name);
    expect(own.length).toBeGreaterThan(10);
    for (const { tools: hasTools, messages, sha256 } of own) {
      const text = template.render(messages.map(toMessage), {
        addGenerationPrompt: true,
        ...(hasTools && { tools }),
      });
      const digest = createHash("sha256").update(text).digest("hex");
      expect(digest, text).toBe(sha256);
    }
  });

  it("are 200", () => {
    expect(reference.conversations).toHaveLength(200);
  });
});
