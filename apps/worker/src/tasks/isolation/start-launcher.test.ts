import { spawn } from "node:child_process";
import { expect, it } from "vitest";
import { LAUNCHER_READY, type LaunchOrders, ORDERS_FD } from "./launch-orders.ts";
import { giveOrders } from "./start-launcher.ts";

it("launcher: its answer counts where its program ends before the answer is read", async () => {
  const script = `head -c 2 <&${ORDERS_FD} > /dev/null; printf '${LAUNCHER_READY}\\n' >&${ORDERS_FD}`;
  const stdio = Array<"ignore" | "pipe">(ORDERS_FD).fill("ignore");
  for (let round = 0; round < 10; round++) {
    const child = spawn("sh", ["-c", script], { stdio: [...stdio, "pipe"] });
    const given = giveOrders(child, {} as LaunchOrders);
    // The worker's event loop is blocked until the child has answered and ended.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100);
    await expect(given).resolves.toBeUndefined();
  }
});

it("launcher: one that ends without an answer is an error at once", async () => {
  const stdio = Array<"ignore" | "pipe">(ORDERS_FD).fill("ignore");
  const child = spawn("sh", ["-c", `head -c 2 <&${ORDERS_FD}; exit 3`], {
    stdio: [...stdio, "pipe"],
  });
  await expect(giveOrders(child, {} as LaunchOrders)).rejects.toThrow(
    "exited without an error message",
  );
});
