import { type ChangeResult, Changer } from "@heddle/raft/changer";
import type { ConfChangeSingle, ConfChangeType } from "@heddle/raft/conf-change";
import { Inflights } from "@heddle/raft/inflights";
import { EMPTY_CONFIG, type TrackedConfig } from "@heddle/raft/tracker";
import { describeConfig, describeProgressMap } from "./describe.ts";
import { type Directive, parseBoolean, parseNumber, ScriptError } from "./directive.ts";

const LETTERS: Record<string, ConfChangeType> = {
  v: "addNode",
  l: "addLearnerNode",
  r: "removeNode",
  u: "updateNode",
};

/** The steps written as `v1 l2 r3 u4`: make 1 a voter and 2 a learner, remove 3, update 4. */
export function parseConfChanges(text: string): ConfChangeSingle[] {
  const tokens = text.split(" ").filter((token) => token !== "");
  return tokens.map((token) => {
    const type = LETTERS[token.charAt(0)];
    if (!type || token.length < 2) throw new ScriptError(`unknown input: ${token}`);
    return { type, nodeId: parseNumber(token.slice(1)) };
  });
}

/** Answers `simple`, `enter-joint` and `leave-joint` on one configuration that starts empty. */
export class ConfChangeCommands {
  #current: TrackedConfig = EMPTY_CONFIG;
  /** Stands for the log, which grows by one entry with each command. */
  #lastIndex = 0;

  handle(directive: Directive): string {
    const result = this.#change(directive);
    this.#lastIndex++;
    if (!result.ok) return `${result.error}\n`;
    this.#current = result.next;
    const { config, progress } = this.#current;
    return `${describeConfig(config)}\n${describeProgressMap(progress)}`;
  }

  #change(directive: Directive): ChangeResult {
    const changes = parseConfChanges(directive.input);
    const changer = new Changer(this.#current, {
      lastIndex: this.#lastIndex,
      newInflights: () => new Inflights(10, Number.POSITIVE_INFINITY),
    });
    switch (directive.command) {
      case "simple":
        return changer.simple(changes);
      case "enter-joint":
        return changer.enterJoint(
          changes,
          directive.args.length > 0 && parseBoolean(directive.value("autoleave")),
        );
      case "leave-joint":
        if (changes.length > 0) return { ok: false, error: "this command takes no input" };
        return changer.leaveJoint();
    }
    return { ok: false, error: "unknown command" };
  }
}
