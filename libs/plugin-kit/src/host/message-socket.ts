import type { Socket } from "node:net";

/** Characters of one message, and bytes that wait until the other side reads them. */
const MAX_LENGTH = 64 * 2 ** 20;

/** As they are before a plugin replaces them. */
const { parse, stringify } = JSON;
const atEndOfTurn = setImmediate;

/** Codes of the digits. */
const [ZERO, NINE] = [48, 57];

/**
 * Messages between a process and that of its plugin: lines of JSON. The answer of a route is JSON
 * text already: its line is the call's number and this text. Those of one turn of the loop are one
 * write, since a write costs more than a message. Node's own channel would end this process where a
 * plugin writes to its descriptor: here that is a fault of the plugin.
 */
export class MessageSocket<Received, Sent> {
  /** Also gets the characters of the message. */
  onMessage: (message: Received, length: number) => void = () => undefined;
  onAnswer: (id: number, text: string) => void = () => undefined;
  /** What was received is no message; nothing more is read. */
  onFault: (error: Error) => void = () => undefined;
  readonly #socket: Socket;
  #lines: string[] = [];
  /** The beginning of a line, without its end. */
  #rest: string[] = [];
  #restLength = 0;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("utf8").on("data", (text: string) => {
      try {
        this.#read(text);
      } catch (error) {
        socket.destroy();
        this.onFault(error as Error);
      }
    });
    // The end of the other process says it.
    socket.on("error", () => undefined);
  }

  /** The other side does not read what it is sent. */
  get isFull(): boolean {
    return this.#socket.writableLength > MAX_LENGTH;
  }

  send(message: Sent): void {
    this.#add(stringify(message));
  }

  /** The text has one line, as JSON has. */
  sendAnswer(id: number, text: string): void {
    this.#add(`${id} ${text}`);
  }

  /** Writes what was sent, before something that may take the whole turn. */
  flush(): void {
    const text = this.#lines.join("");
    this.#lines = [];
    if (text !== "" && this.#socket.writable) this.#socket.write(text);
  }

  #add(line: string): void {
    if (this.#lines.push(`${line}\n`) === 1) atEndOfTurn(() => this.flush());
  }

  #read(text: string): void {
    let begin = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", begin)) {
      this.#rest.push(text.slice(begin, end));
      const line = this.#rest.join("");
      this.#rest = [];
      this.#restLength = 0;
      begin = end + 1;
      this.#receive(line);
    }
    if (begin === text.length) return;
    this.#rest.push(text.slice(begin));
    this.#restLength += text.length - begin;
    if (this.#restLength > MAX_LENGTH) {
      throw new Error(`a message of more than ${MAX_LENGTH} characters was received`);
    }
  }

  #receive(line: string): void {
    const first = line.charCodeAt(0);
    if (first >= ZERO && first <= NINE) {
      const idEnd = line.indexOf(" ");
      this.onAnswer(Number(line.slice(0, idEnd)), line.slice(idEnd + 1));
    } else {
      this.onMessage(parse(line) as Received, line.length);
    }
  }
}
