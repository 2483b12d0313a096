/**
 * Reads event streams (WHATWG HTML, section 9.2.6) with the fields that Berth sends: `event`, `id`,
 * `data`. The command line and the dashboard use it.
 */

/** `data` is empty for an event that has only an id. */
export type Frame = { event: string; id: string | null; data: string };

/** Maximum length of an event in characters. A log line has at most 16,000. */
const MAX_EVENT = 1024 * 1024;

/** The incomplete event at the end of the text read so far. */
type Unfinished = {
  event: string;
  id: string | null;
  data: string[];
  /** The start of the incomplete line. */
  line: string;
  /** Length of the event so far, in characters. */
  size: number;
  /** Whether the last character was CR: a following LF belongs to the same line end. */
  endsWithCr: boolean;
};

const begin = (): Unfinished => ({
  event: '',
  id: null,
  data: [],
  line: '',
  size: 0,
  endsWithCr: false,
});

/**
 * Creates a reader of events. `add` takes decoded text in pieces of any size and returns the events
 * that it completes. Throws if an event is too long.
 */
export function createFrameReader(maxLength = MAX_EVENT): { add(text: string): Frame[] } {
  const unfinished = begin();
  return { add: (text) => framesOf(unfinished, text, maxLength) };
}

function framesOf(unfinished: Unfinished, text: string, maxLength: number): Frame[] {
  const frames: Frame[] = [];
  let from = unfinished.endsWithCr && text.startsWith('\n') ? 1 : 0;
  if (text !== '') unfinished.endsWithCr = false;
  for (let at = from; at < text.length; at += 1) {
    const character = text[at];
    if (character !== '\n' && character !== '\r') continue;
    addToLine(unfinished, text.slice(from, at));
    const frame = endLine(unfinished);
    if (frame !== null) frames.push(frame);
    if (character === '\r') {
      if (text[at + 1] === '\n') at += 1;
      else if (at + 1 === text.length) unfinished.endsWithCr = true;
    }
    from = at + 1;
  }
  addToLine(unfinished, text.slice(from));
  if (unfinished.size > maxLength) throw new Error('an event of the stream is too long');
  return frames;
}

function addToLine(unfinished: Unfinished, text: string): void {
  unfinished.line += text;
  unfinished.size += text.length;
}

/**
 * Handles a complete line. An empty line ends the event: returns the event. Returns null for other
 * lines.
 */
function endLine(unfinished: Unfinished): Frame | null {
  const { line } = unfinished;
  unfinished.line = '';
  if (line === '') return endEvent(unfinished);
  const colon = line.indexOf(':');
  // A line that begins with a colon is a comment.
  if (colon === 0) return null;
  const name = colon === -1 ? line : line.slice(0, colon);
  const value = colon === -1 ? '' : line.slice(colon + (line[colon + 1] === ' ' ? 2 : 1));
  if (name === 'data') unfinished.data.push(value);
  else if (name === 'event') unfinished.event = value;
  else if (name === 'id') unfinished.id = value;
  return null;
}

function endEvent(unfinished: Unfinished): Frame | null {
  const { event, id, data, endsWithCr } = unfinished;
  Object.assign(unfinished, { ...begin(), endsWithCr });
  if (data.length === 0 && id === null) return null;
  return { event: event === '' ? 'message' : event, id, data: data.join('\n') };
}
