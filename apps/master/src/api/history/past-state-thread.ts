import { parentPort, workerData } from "node:worker_threads";
import { toAppError } from "@heddle/base/errors";
import { readSecretKeys } from "@heddle/base/secret-keys";
import { readPastState } from "@heddle/consensus/replica/past-state";
import { nodeStorageFiles } from "@heddle/storage/storage-files";
import { ControlMachine } from "../../control-plane/raft/control-machine.ts";
import { pastDecision } from "./past-decision.ts";
import type { PastAnswer, PastOrder } from "./past-question.ts";
import { pastState } from "./past-views.ts";

// Rebuilds a past state and answers one question about it. What it reads stays in this thread.

async function answer({ at, question, ...order }: PastOrder): Promise<PastAnswer> {
  const { directory, owner, secretsKeyFile } = order;
  try {
    const keys = readSecretKeys(secretsKeyFile, process.env);
    const storage = { files: nodeStorageFiles, directory, owner };
    const make = () => new ControlMachine(undefined, { keys });
    const { machine, firstKept } = await readPastState(storage, at, make);
    const { control } = machine;
    const time = new Date(control.logTimeMs).toISOString();
    const moment = { at, time, first_kept: firstKept };
    const made =
      question.kind === "state"
        ? pastState(control, question)
        : await pastDecision(control, at, question.job);
    return { ok: true, json: JSON.stringify({ ...moment, ...made }) };
  } catch (error) {
    const { code, message } = toAppError(error);
    return { ok: false, code, message };
  }
}

parentPort?.postMessage(await answer(workerData as PastOrder));
