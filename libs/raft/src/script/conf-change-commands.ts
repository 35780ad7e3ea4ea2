import { type ChangeResult, Changer } from "../membership/changer.ts";
import type { ConfChangeSingle, ConfChangeType } from "../membership/conf-change.ts";
import { Inflights } from "../tracker/inflights.ts";
import { EMPTY_CONFIG, type TrackedConfig } from "../tracker/tracker.ts";
import { describeConfig, describeProgressMap } from "./describe.ts";
import { CommandError, type Directive, parseBoolean } from "./directive.ts";

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
    if (token.length < 2) throw new CommandError(`unknown token ${token}`);
    const type = LETTERS[token.charAt(0)];
    if (!type) throw new CommandError(`unknown input: ${token}`);
    const id = token.slice(1);
    if (!/^\d+$/.test(id)) {
      throw new CommandError(`strconv.ParseUint: parsing "${id}": invalid syntax`);
    }
    return { type, nodeId: Number(id) };
  });
}

/** Answers `simple`, `enter-joint` and `leave-joint` on one configuration that starts empty. */
export class ConfChangeCommands {
  #current: TrackedConfig = EMPTY_CONFIG;
  /** Replaces the log: each command adds one entry. */
  #lastIndex = 0;

  handle(directive: Directive): string {
    const result = this.#result(directive);
    this.#lastIndex++;
    if (!result.ok) return `${result.error}\n`;
    this.#current = result.next;
    const { config, progress } = this.#current;
    return `${describeConfig(config)}\n${describeProgressMap(progress)}`;
  }

  #result(directive: Directive): ChangeResult {
    try {
      return this.#change(directive);
    } catch (error) {
      if (error instanceof CommandError) return { ok: false, error: error.message };
      throw error;
    }
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
