import type { ChatMessage } from "@heddle/contracts/engine";
import { describe, expect, it } from "vitest";
import { ChatTemplate } from "./chat-template.ts";
import { chooseTemplate } from "./template-choice.ts";

const CHATML = ["<|im_start|>", "<|im_end|>"];
const LLAMA3 = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"];
const GEMMA = ["<start_of_turn>", "<end_of_turn>"];

function chosen(controls: readonly string[], option?: string, file = "") {
  return chooseTemplate({ option, file }, new Set(controls));
}

function rendered(controls: readonly string[], messages: readonly [string, string][]): string {
  const template = new ChatTemplate(chosen(controls).source, { bos: "<bos>", eos: "" });
  const sent = messages.map(([role, content]) => ({ role, content }) as ChatMessage);
  return template.render(sent, { addGenerationPrompt: true });
}

describe("the chat template in use", () => {
  it("is the option's, else the file's; a blank one counts as none", () => {
    expect(chosen(CHATML, "a", "b")).toEqual({ source: "a", origin: "option" });
    expect(chosen(CHATML, " \n", "b")).toEqual({ source: "b", origin: "file" });
    expect(chosen(CHATML, undefined, "b")).toEqual({ source: "b", origin: "file" });
    expect(chosen(CHATML, "", " ").origin).toBe("chatml");
  });

  it.each([
    ["chatml", CHATML],
    ["llama3", LLAMA3],
    ["gemma", GEMMA],
  ])("is %s only where the vocabulary has all its control tokens", (origin, controls) => {
    expect(chosen(controls).origin).toBe(origin);
    for (const missing of controls) {
      expect(chosen(controls.filter((text) => text !== missing)).origin).toBe("plain");
    }
  });
});

describe("the template of a family", () => {
  const talk: [string, string][] = [
    ["system", "Be brief."],
    ["user", "Hello"],
    ["assistant", "Hi"],
    ["user", "Why?"],
  ];

  it("is ChatML's", () => {
    expect(rendered(CHATML, talk)).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n",
    );
  });

  it("is Llama 3's", () => {
    expect(rendered(LLAMA3, talk.slice(0, 2))).toBe(
      "<bos><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    );
  });

  it("is Gemma's, with system text in the next user turn", () => {
    expect(rendered(GEMMA, talk)).toBe(
      "<bos><start_of_turn>user\nBe brief.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi<end_of_turn>\n<start_of_turn>user\nWhy?<end_of_turn>\n<start_of_turn>model\n",
    );
  });

  it("is Gemma's, and no system text is lost where no user turn follows", () => {
    const user = "<start_of_turn>user\nA\n\nB<end_of_turn>\n";
    const system: [string, string][] = [
      ["system", "A"],
      ["system", "B"],
    ];
    expect(rendered(GEMMA, system)).toBe(`<bos>${user}<start_of_turn>model\n`);
    expect(rendered(GEMMA, [...system, ["assistant", "C"]])).toBe(
      `<bos>${user}<start_of_turn>model\nC<end_of_turn>\n<start_of_turn>model\n`,
    );
  });

  it("is plain text for no family", () => {
    expect(rendered([], talk.slice(0, 2))).toBe("system: Be brief.\n\nuser: Hello\n\nassistant:");
  });
});
