/** Searches logs for a text or a /regular expression/i. */
import { messageOf } from '@berth/kit/message-of';

/** Returns the matcher, or the error message of the regular expression. */
export function matcherOf(typed: string): ((text: string) => boolean) | string {
  if (typed === '') return () => true;
  const pattern = /^\/(.+)\/(i?)$/.exec(typed);
  if (pattern === null) {
    const lower = typed.toLowerCase();
    return (text) => text.toLowerCase().includes(lower);
  }
  try {
    const regex = new RegExp(pattern[1] ?? '', pattern[2]);
    return (text) => regex.test(text);
  } catch (error) {
    return messageOf(error);
  }
}
