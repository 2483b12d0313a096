/** Reads the stages of a Dockerfile and the TCP ports that they expose. It guesses for a form, so it skips what it cannot resolve. */
import { MAX_PARTS_FOUND } from '@berth/wire/repository-look';

type Stage = { name: string | null; ports: Set<number>; env: Map<string, string> };
export type DockerfileFacts = { ports: number[]; targets: { name: string; ports: number[] }[] };

/** `ports`: those of the last stage. A stage has the ports and variables of the stage that it begins from. */
export function dockerfileFacts(text: string): DockerfileFacts {
  const stages: Stage[] = [];
  /** ARGs before the first FROM. */
  const global = new Map<string, string>();
  for (const { word, rest } of instructions(text)) {
    const stage = stages.at(-1);
    if (word === 'FROM') stages.push(begun(rest, stages, global));
    else if (word === 'ARG' || word === 'ENV') define(rest, stage?.env ?? global, word, stage === undefined ? null : global);
    else if (word === 'EXPOSE' && stage !== undefined) for (const port of portsOf(rest, stage.env)) stage.ports.add(port);
  }
  const listed = ({ ports }: Stage): number[] => [...ports].slice(0, MAX_PARTS_FOUND);
  const last = stages.at(-1);
  const targets = stages.flatMap((stage) => (stage.name === null ? [] : [{ name: stage.name, ports: listed(stage) }]));
  return { ports: last === undefined ? [] : listed(last), targets: targets.slice(0, MAX_PARTS_FOUND) };
}

/** Joins continued lines and leaves out comments. The escape character is \ unless a directive at the top names `. */
function* instructions(text: string): Generator<{ word: string; rest: string }> {
  const isBacktick = /^(?:\s*#.*\r?\n)*?\s*#\s*escape\s*=\s*`/i.test(text);
  const continued = isBacktick ? /`[ \t]*$/ : /\\[ \t]*$/;
  let open = '';
  for (const raw of text.split(/\r?\n/)) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    open += ` ${line.replace(continued, '')}`;
    if (continued.test(line)) continue;
    const [, word = '', rest = ''] = /^\s*(\S+)\s*(.*)$/.exec(open) ?? [];
    open = '';
    yield { word: word.toUpperCase(), rest };
  }
}

function begun(rest: string, stages: readonly Stage[], global: ReadonlyMap<string, string>): Stage {
  const words = rest.split(/\s+/).filter((word) => !word.startsWith('--'));
  const image = resolved(words[0] ?? '', global).toLowerCase();
  const name = words[1]?.toUpperCase() === 'AS' ? (words[2] ?? null) : null;
  const base = stages.findLast((stage) => stage.name?.toLowerCase() === image);
  const isName = name !== null && /^[A-Za-z][\w.-]{0,199}$/.test(name);
  return { name: isName ? name : null, ports: new Set(base?.ports), env: new Map(base?.env) };
}

/** `outer`: a stage sees a global ARG only after an ARG of its own without a value. */
function define(rest: string, into: Map<string, string>, word: string, outer: ReadonlyMap<string, string> | null): void {
  const pairs = [...rest.matchAll(/([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\S*)/g)];
  for (const [, name = '', value = ''] of pairs) into.set(name, resolved(value.replace(/^(["'])(.*)\1$/, '$2'), into));
  const [first = '', ...others] = rest.split(/\s+/);
  if (pairs.length > 0 || first === '') return;
  if (word === 'ENV' && others.length > 0) into.set(first, resolved(others.join(' '), into));
  const known = outer?.get(first);
  if (word === 'ARG' && known !== undefined) into.set(first, known);
}

const resolved = (text: string, env: ReadonlyMap<string, string>): string =>
  text.replace(
    /\$(?:\{([A-Za-z_]\w*)(?::?-([^}]*))?\}|([A-Za-z_]\w*))/g,
    (_, braced?: string, otherwise?: string, bare?: string) => env.get(braced ?? bare ?? '') ?? otherwise ?? '',
  );

/** Returns the first port of a range, and no UDP port: those are not published. */
function portsOf(rest: string, env: ReadonlyMap<string, string>): number[] {
  return resolved(rest, env)
    .split(/\s+/)
    .flatMap((word) => {
      const [, port] = /^(\d{1,5})(?:-\d{1,5})?(?:\/tcp)?$/i.exec(word) ?? [];
      return port === undefined || Number(port) < 1 || Number(port) > 65_535 ? [] : [Number(port)];
    });
}
