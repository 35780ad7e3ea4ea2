import { hashApiKey } from "@heddle/auth/api-key";
import { AppError } from "@heddle/base/errors";
import type { ControlCommand } from "@heddle/control/command";
import { createLogger } from "@heddle/observability/logger";
import { expect, test } from "vitest";
import { TEST_PEPPER, VolatileControl } from "../../test/test-master.ts";
import { profileSeed, seedModels, unseededModels } from "./catalog/seed.ts";
import { untilSettled } from "./propose.ts";
import { bootstrapAdminKey } from "./raft/secrets.ts";

const logger = createLogger({ service: "master-test", level: "silent" });

/** Applies the first change but loses its outcome, refuses the second, and applies all others. */
class LosingControl extends VolatileControl {
  attempts = 0;

  override async propose(command: ControlCommand) {
    this.attempts++;
    if (this.attempts === 2) throw new AppError("unavailable", "there is no leader");
    const reply = await super.propose(command);
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
