import { parentPort, workerData } from "node:worker_threads";
import { answerExchanges } from "./answer-exchanges.ts";
import type { ExchangeStart } from "./exchange-api.ts";

// The thread of a task's exchanges: backends block the thread in which they compute.

if (!parentPort) throw new Error("the thread of exchanges is started by a training task");
answerExchanges(parentPort, workerData as ExchangeStart);
