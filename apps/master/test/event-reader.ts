import { readServerSentEvents, SILENCE_MS } from "@heddle/client/server-sent-events";

/** One event of a server-sent stream. */
export interface ReadEvent {
  readonly id: string | undefined;
  readonly type: string;
  readonly data: {
    readonly job_id?: string;
    readonly state?: string;
    readonly phase?: string;
    readonly progress?: number;
  };
}

/** Reads a stream of events until `enough` returns true or the stream ends, then disconnects. */
export async function readTestEvents(
  url: string,
  key: string,
  after: string | undefined,
  enough: (events: readonly ReadEvent[]) => boolean,
): Promise<ReadEvent[]> {
  const hangUp = new AbortController();
  const response = await fetch(url, {
    headers: {
      authorization: `Bearer ${key}`,
      accept: "text/event-stream",
      ...(after === undefined ? {} : { "last-event-id": after }),
    },
    signal: hangUp.signal,
  });
  if (response.status !== 200) throw new Error(`${response.status}: ${await response.text()}`);
  const events: ReadEvent[] = [];
  for await (const { id, type, data } of readServerSentEvents(response.body!, SILENCE_MS)) {
    if (data !== "") events.push({ id, type, data: JSON.parse(data) as ReadEvent["data"] });
    if (enough(events)) break;
  }
  hangUp.abort();
  return events;
}
