/**
 * One sentence for lists from the message of a failure, which can have lines of a program below its
 * first line.
 */

const MOST = 220;
/** A line that names the error: of node, Python, Java, Go, Rust, npm, a compiler, a shell. */
const NAMES_ERROR = new RegExp(
  String.raw`(?:^|\s)(?:[\w.]*(?:Error|Exception)|error(?:\[\w+\])?|error TS\d+|fatal|panic` +
    String.raw`|npm (?:error|ERR!))(?=[:\s([])`,
  'i',
);
/** A place in a stack trace, an arrow below a line of code, a frame of Python. */
const IS_PLACE = /^\s*(?:at\s|File "|\^|~|\|)|^\s*$|^\s*throw\s/;

const cut = (text: string): string => (text.length > MOST ? `${text.slice(0, MOST - 1)}…` : text);

/** `[3/5] RUN npm test: exit code 1` is “RUN npm test failed”. */
function headOf(line: string): { head: string; rest: string } {
  const step = /^(?:\[[^\]]*\] )?(.+): exit code (\d+)$/.exec(line);
  return step === null
    ? { head: line.replace(/[:.]$/, ''), rest: '' }
    : { head: `${step[1] ?? ''} failed`, rest: ` with exit code ${step[2] ?? ''}` };
}

export function errorSentence(message: string): string {
  const [first = '', ...more] = message.trim().split(/\r?\n/);
  if (more.every((line) => line.trim() === '')) {
    const { head, rest } = headOf(first.trim());
    return cut(rest === '' ? first.trim() : `${head}${rest}`);
  }
  const lines = more.filter((line) => !IS_PLACE.test(line));
  // A traceback of Python ends with its error; the others begin with it.
  const errorLine = more.some((line) => line.startsWith('Traceback'))
    ? lines.findLast((line) => NAMES_ERROR.test(line))
    : lines.find((line) => NAMES_ERROR.test(line));
  const { head, rest } = headOf(first.trim());
  const cause = (errorLine ?? lines.at(-1) ?? '')
    .trim()
    .replace(/^(?:Error|ERROR|error|fatal|npm (?:error|ERR!)): */, '');
  return cut(cause === '' ? `${head}${rest}` : `${head}: ${cause}`);
}
