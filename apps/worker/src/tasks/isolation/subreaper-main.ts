import { ORDERS_FD } from "./launch-orders.ts";
import { adoptOrphans, execute } from "./libc.ts";

// Becomes the program of its arguments as a subreaper. Processes that the task's programs leave
// behind become its children, also those that have left their session and environment.

const [program = "", ...args] = process.argv.slice(2);
adoptOrphans();
execute(program, [program, ...args], process.env as Record<string, string>, ORDERS_FD + 1);
