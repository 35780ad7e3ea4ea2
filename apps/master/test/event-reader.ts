/** One event of a server-sent stream. */
export interface ReadEvent {
  readonly id: string | undefined;
  readonly type: string | undefined;
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
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body!) {
    text += decoder.decode(chunk as Uint8Array, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const event = parse(text.slice(0, end));
      text = text.slice(end + 2);
      if (event && !enough(events)) events.push(event);
    }
    if (enough(events)) break;
  }
  hangUp.abort();
  return events;
}

function parse(block: string): ReadEvent | undefined {
  const data = /^data: (.*)$/m.exec(block)?.[1];
  if (data === undefined) return undefined;
  const id = /^id: (.*)$/m.exec(block)?.[1];
  const type = /^event: (.*)$/m.exec(block)?.[1];
  return { id, type, data: JSON.parse(data) as ReadEvent["data"] };
}
