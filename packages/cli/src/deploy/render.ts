/**
 * Shows steps on stderr. A terminal shows a block that is redrawn in place. Other outputs get one
 * line for each change.
 */
import { stripVTControlCharacters } from 'node:util';
import { type Io, canAnimate } from '../io.ts';
import { oneLine, type Paint, paintWith, safe, truncate, widthOf } from '../output/text.ts';
import { seconds } from '../output/units.ts';
import type { Step, StepState } from './steps.ts';

export type Renderer = {
  show(steps: readonly Step[]): void;
  /** Prints a sentence above the steps. */
  note(text: string): void;
  /** Stops drawing and leaves the steps on the screen. A second call has no effect. */
  end(): void;
};

const MARKS: Record<StepState, string> = { running: '·', done: '✓', failed: '✗', stopped: '–' };
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const FRAME_MS = 100;
const NAME_WIDTH = 6;

export const createRenderer = (io: Io): Renderer => (canAnimate(io) ? animated(io) : plain(io));

/** Prints one line when a step begins, when its detail changes, and when it ends. */
function plain(io: Io): Renderer {
  /** The last printed line of each step. */
  const printed = new Map<string, string>();
  return {
    show(steps) {
      for (const step of steps) {
        const detail = step.detail === '' ? '' : `: ${oneLine(step.detail)}`;
        const text = `${step.name.padEnd(NAME_WIDTH)} ${wordOf(step)}${detail}`;
        if (printed.get(step.name) === text) continue;
        printed.set(step.name, text);
        const time = step.endedAt === null ? '' : ` (${seconds(step.endedAt - step.startedAt)})`;
        io.err(`${text}${time}\n`);
      }
    },
    note: (text) => io.err(`${safe(text)}\n`),
    end: () => undefined,
  };
}

const wordOf = ({ state }: Step): string =>
  ({ running: 'runs', done: 'done', failed: 'failed', stopped: 'stopped' })[state];

function animated(io: Io): Renderer {
  const paint = paintWith(true);
  let steps: readonly Step[] = [];
  /** Width in columns of each drawn line. */
  let drawn: number[] = [];
  let frame = 0;
  let ended = false;
  /** Counts the rows to erase: if the terminal became narrower, a line takes several rows. */
  const rows = (): number =>
    drawn.reduce((sum, width) => sum + Math.max(1, Math.ceil(width / io.columns())), 0);
  const erase = (): string => (drawn.length === 0 ? '' : `\u001b[${rows()}A\r\u001b[J`);
  function draw(above = ''): void {
    const lines = steps.map((step) => lineOf(step, io, paint, FRAMES[frame % FRAMES.length] ?? ''));
    io.err(`${erase()}${above}${lines.map((line) => `${line}\n`).join('')}`);
    drawn = lines.map((line) => widthOf(stripVTControlCharacters(line)));
  }
  const timer = setInterval(() => {
    frame++;
    if (steps.some((step) => step.state === 'running')) draw();
  }, FRAME_MS);
  timer.unref();
  io.err('\u001b[?25l');
  return {
    show(next) {
      steps = next;
      draw();
    },
    note: (text) => draw(`${safe(text)}\n`),
    end() {
      // Do not draw the steps again below the text that follows them.
      if (ended) return;
      ended = true;
      clearInterval(timer);
      draw();
      io.err('\u001b[?25h');
    },
  };
}

const COLOURS = { running: 'cyan', done: 'green', failed: 'red', stopped: 'yellow' } as const;

function lineOf(step: Step, io: Io, paint: Paint, spinner: string): string {
  const mark = paint(COLOURS[step.state], step.state === 'running' ? spinner : MARKS[step.state]);
  const time = seconds((step.endedAt ?? io.now()) - step.startedAt);
  const text = [step.detail, step.live].filter((part) => part !== '').join(': ');
  const room = Math.max(10, io.columns() - NAME_WIDTH - time.length - 8);
  return (
    `  ${mark} ${paint('bold', step.name.padEnd(NAME_WIDTH))} ${truncate(oneLine(text), room)} ` +
    paint('dim', time)
  );
}
