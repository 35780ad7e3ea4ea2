import type { ChildProcess } from "node:child_process";
import { existsSync } from "node:fs";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { type Confinement, LAUNCHER_READY, type LaunchOrders, ORDERS_FD } from "./launch-orders.ts";

/** A launcher that gives no answer is killed after that. */
const LAUNCH_TIMEOUT_MS = 60_000;
const MAX_ANSWER_BYTES = 8_192;

const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const commandOf = (name: string) => [
  process.execPath,
  "--max-old-space-size=64",
  fileURLToPath(new URL(`./${name}${extension}`, import.meta.url)),
];

const LAUNCHER: readonly string[] = commandOf("launcher-main");
/** Where util-linux is. Node cannot do this itself: the kernel refuses it to a process of many threads. */
const UNSHARE = ["/usr/bin/unshare", "/bin/unshare"];
const OWN_MOUNTS = ["--user", "--map-current-user", "--mount", "--keep-caps", "--"];

/** The launcher's command line. Its memory is small, and it reads no options from the environment. */
export function launcherFor(confinement: Confinement): readonly string[] {
  if (confinement.kind !== "landlock" || !confinement.hasOwnMounts) return LAUNCHER;
  const unshare = UNSHARE.find((path) => existsSync(path));
  if (unshare) return [unshare, ...OWN_MOUNTS, ...LAUNCHER];
  throw new Error(`there is no unshare of util-linux at ${UNSHARE.join(" or ")}`);
}
/** Likewise of what becomes the program after it as a subreaper. */
export const SUBREAPER: readonly string[] = commandOf("subreaper-main");

/**
 * Gives the launcher its orders over its descriptor. Resolves when it is about to become the program.
 * Rejects with an Error that says why it cannot.
 */
export async function giveOrders(child: ChildProcess, orders: LaunchOrders): Promise<void> {
  const pipe = (child.stdio as readonly unknown[])[ORDERS_FD] as Socket;
  const answer = new Promise<string>((resolve) => {
    let text = "";
    const finish = () => resolve(text.trim());
    pipe.on("data", (piece: Buffer) => {
      text += piece.toString("utf8");
      if (text.includes("\n") || text.length > MAX_ANSWER_BYTES) finish();
    });
    // Not at the child's end, which may be seen before an answer that is still in the pipe.
    pipe.once("end", finish).once("error", finish).once("close", finish);
    setTimeout(finish, LAUNCH_TIMEOUT_MS).unref();
  });
  pipe.end(JSON.stringify(orders));
  const text = await answer;
  pipe.destroy();
  if (text === LAUNCHER_READY) return;
  throw new Error(text || "the launcher of the task exited without an error message");
}
