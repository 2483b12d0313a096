/**
 * Reads event streams (WHATWG HTML, section 9.2.6) with the fields that Berth sends: `event`, `id`,
 * `data`. The command line and the dashboard use it.
 */

/** `data` is empty for an event that has only an id. */
export type Frame = { event: string; id: string | null; data: string };

/** Longest event in characters: a line of a log has at most 16,000. */
const MAX_EVENT = 1024 * 1024;

/**
 * Takes the decoded text in any pieces. `add` returns the events that are complete. Throws if an
 * event is too long.
 */
export function createFrameReader(most = MAX_EVENT): { add(text: string): Frame[] } {
  let line = '';
  let size = 0;
  /** The last character was CR: an LF after it belongs to the same line end. */
  let returned = false;
  let frame: { event: string; id: string | null; data: string[] } = {
    event: '',
    id: null,
    data: [],
  };

  function field(found: Frame[]): void {
    const text = line;
    line = '';
    if (text === '') {
      const { event, id, data } = frame;
      if (data.length > 0 || id !== null)
        found.push({ event: event === '' ? 'message' : event, id, data: data.join('\n') });
      frame = { event: '', id: null, data: [] };
      size = 0;
      return;
    }
    const colon = text.indexOf(':');
    // A line that begins with a colon is a comment.
    if (colon === 0) return;
    const name = colon === -1 ? text : text.slice(0, colon);
    const value = colon === -1 ? '' : text.slice(colon + (text[colon + 1] === ' ' ? 2 : 1));
    if (name === 'data') frame.data.push(value);
    else if (name === 'event') frame.event = value;
    else if (name === 'id') frame.id = value;
  }

  return {
    add(text) {
      const found: Frame[] = [];
      let from = returned && text.startsWith('\n') ? 1 : 0;
      if (text !== '') returned = false;
      for (let at = from; at < text.length; at += 1) {
        const character = text[at];
        if (character !== '\n' && character !== '\r') continue;
        line += text.slice(from, at);
        size += at - from;
        field(found);
        if (character === '\r') {
          if (text[at + 1] === '\n') at += 1;
          else if (at + 1 === text.length) returned = true;
        }
        from = at + 1;
      }
      line += text.slice(from);
      size += text.length - from;
      if (size > most) throw new Error('an event of the stream is too long');
      return found;
    },
  };
}
