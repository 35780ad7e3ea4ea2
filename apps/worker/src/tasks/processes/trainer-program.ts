import { fileURLToPath } from "node:url";
import {
  EXIT_CORRUPT,
  EXIT_FAILED,
  EXIT_SERVER_LOST,
  EXIT_UNUSABLE,
  EXIT_UNWRITABLE,
} from "@heddle/contracts/trainer/exit-codes";
import type { TaskHandle } from "../executors/executor.ts";

/** A program of the trainer, which is an app of its own: compiled code beside this app's folder. */
export function trainerProgram(name: string): string {
  return fileURLToPath(new URL(`../../../../trainer/dist/${name}.js`, import.meta.url));
}

/**
 * The process of such a program, with the cause of its end: a lost server, the config, or itself. In
 * an elastic job one that a signal ended is lost like its node: the others of its job may continue.
 */
export function asTrainer(handle: TaskHandle, isElastic: boolean): TaskHandle {
  return {
    record: handle.record,
    signal: (name, onlyCaught) => handle.signal(name, onlyCaught),
    hold: (isHeld) => handle.hold(isHeld),
    kill: () => handle.kill(),
    killNow: (scan) => handle.killNow(scan),
    usage: () => handle.usage(),
    exited: handle.exited.then((end) => {
      // Without a status a signal has ended it, or its node went down and returned.
      const isKilled = end.exitCode === undefined;
      if (end.exitCode === EXIT_SERVER_LOST || (isElastic && isKilled))
        return { ...end, lostNode: true };
      if (end.exitCode === EXIT_CORRUPT) return { ...end, isCheckpointCorrupt: true };
      if (end.exitCode === EXIT_UNWRITABLE || end.exitCode === EXIT_FAILED)
        return { ...end, hasReason: true };
      return end.exitCode === EXIT_UNUSABLE ? { ...end, isUnusable: true } : end;
    }),
  };
}
