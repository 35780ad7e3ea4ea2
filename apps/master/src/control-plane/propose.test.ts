import { hashApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import { createLogger } from "@heddle/observability/logger";
import { expect, test } from "vitest";
import { TEST_PEPPER, VolatileControl } from "../../test/test-master.ts";
import { profileSeed, seedModels, unseededModels } from "./catalog/seed.ts";
import type { Once } from "./control-plane.ts";
import { proposeOnce, untilSettled } from "./propose.ts";
import { bootstrapAdminKey, keepFirst } from "./raft/secrets.ts";

const logger = createLogger({ service: "master-test", level: "silent" });

/** Applies the first change but loses its outcome, refuses the second, and applies all others. */
class LosingControl extends VolatileControl {
  attempts = 0;

  override async propose(command: ControlCommand, once?: Once) {
    return this.#losing(() => super.propose(command, once));
  }

  override async keepSecret(name: string, value: string) {
    return this.#losing(() => super.keepSecret(name, value));
  }

  async #losing(change: () => Promise<ControlReply>): Promise<ControlReply> {
    this.attempts++;
    if (this.attempts === 2) throw new AppError("unavailable", "there is no leader");
    const reply = await change();
    if (this.attempts === 1) throw new AppError("outcome_unknown", "the leader changed");
    return reply;
  }
}

test("start during an election: every model is seeded once", async () => {
  const control = new LosingControl();
  await seedModels(control, profileSeed("tiny"), logger);
  expect(unseededModels(control.state, profileSeed("tiny"))).toEqual([]);
  expect(control.state.models.size).toBe(5);
  expect(control.attempts).toBe(7);
});

test("start during an election: the administrator's key is made once and returned", async () => {
  const control = new LosingControl();
  const text = await bootstrapAdminKey(control, TEST_PEPPER, undefined);
  const [key] = control.state.keys.values();
  expect(control.state.keys.size).toBe(1);
  expect(key?.hash).toBe(hashApiKey(text ?? "", TEST_PEPPER));
});

test("start during an election: the cluster gets one authority", async () => {
  const control = new LosingControl();
  await keepFirst(control, "authority", "of this master");
  expect(control.secret("authority")).toBe("of this master");
  expect(control.attempts).toBe(3);
  await keepFirst(control, "authority", "of another");
  expect(control.attempts).toBe(3);
});

// holds: masters-join-election
test("join during an election: a token is used once, and admits its node", async () => {
  const control = new LosingControl();
  const [atMs, id, role] = [Date.now(), "a".repeat(64), "master" as const];
  control.attempts = 2;
  const join = { role, name: "m", expiresAtMs: atMs + 60_000 };
  await control.propose({ type: "join.create", atMs, id, join });
  control.attempts = 0;
  const use = { type: "join.use", atMs, id, role } as const;
  await proposeOnce(control, use);
  expect(control.attempts).toBe(3);
  await expect(proposeOnce(control, use)).rejects.toMatchObject({ code: "not_found" });
});

test("start during an election: a refused change is not tried again", async () => {
  const refusal = new AppError("conflict", "there is one");
  let attempts = 0;
  const attempt = () => {
    attempts++;
    return Promise.reject(refusal);
  };
  await expect(untilSettled(new VolatileControl(), attempt)).rejects.toBe(refusal);
  expect(attempts).toBe(1);
});
