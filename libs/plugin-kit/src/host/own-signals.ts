import { syncBuiltinESMExports } from "node:module";
import os from "node:os";

/** What Node's own `process.kill` sends signals with, and what makes a process debuggable. */
interface Signals {
  _kill(pid: number, signal: number): number;
  _debugProcess(pid: number): void;
}

const signals = process as unknown as Signals;
const { _kill: kill } = signals;
const { pid: OWN } = process;

/** Ends this process, whatever handlers of the plugin would do at an exit. */
export function endOwnProcess(): void {
  kill(OWN, os.constants.signals.SIGKILL);
}

/** From now on plugins end, debug and slow down no process but this one, and those that they may start. */
export function guardSignals(startsProcesses: boolean): void {
  signals._kill = (pid, signal) => {
    if (pid === OWN || startsProcesses) return kill(pid, signal);
    throw new Error("a plugin may not send signals to other processes");
  };
  signals._debugProcess = () => {
    throw new Error("a plugin may not debug other processes");
  };
  os.setPriority = () => {
    throw new Error("a plugin may not change priorities");
  };
  syncBuiltinESMExports();
}
