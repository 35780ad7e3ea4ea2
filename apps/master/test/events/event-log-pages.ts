import { eventually } from "@heddle/base/testing/eventually";
import type { LogEvent, LogEventPage } from "@heddle/contracts/api/events/log";
import type { MasterGroup } from "../master-group.ts";

/** One page of a master's event log, as the leader has it. */
export async function eventPage(
  group: MasterGroup,
  name: string,
  query: string,
): Promise<LogEventPage> {
  const path = `/api/v1/events/log?limit=1000&consistency=strong&${query}`;
  const reply = await group.request(name, "GET", path);
  if (reply.status !== 200) throw new Error(`${reply.status}: ${await reply.text()}`);
  return (await reply.json()) as LogEventPage;
}

/** All pages of a master's event log. */
export async function eventLog(
  group: MasterGroup,
  name: string,
  query = "",
): Promise<readonly LogEvent[]> {
  const events: LogEvent[] = [];
  for (let cursor: string | null = "0"; cursor !== null; ) {
    const after: string = events.length > 0 || cursor !== "0" ? `&cursor=${cursor}` : "";
    const next = await eventPage(group, name, query + after);
    events.push(...next.data);
    cursor = next.next_cursor;
  }
  return events;
}

/** Resolves when these masters have the same event log, and returns it. */
export async function agreedEventLog(
  group: MasterGroup,
  names: readonly string[],
): Promise<readonly LogEvent[]> {
  let log: readonly LogEvent[] = [];
  await eventually(async () => {
    const logs = await Promise.all(names.map((name) => eventLog(group, name).catch(() => [])));
    const texts = new Set(logs.map((each) => JSON.stringify(each)));
    log = logs[0] ?? [];
    return texts.size === 1 && log.length > 0;
  });
  return log;
}
