/**
 * The output of `berth doctor`: findings first, then parts that could not be checked, then parts
 * without problems.
 */
import type { Result } from './result.ts';

export type Checked = { check: string; results: readonly Result[] };

/** Wraps a text at word boundaries, with a hanging indent. */
function wrapped(text: string, indent: string, width: number): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(' ')) {
    if (line !== '' && indent.length + line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  return [...lines, line].join(`\n${indent}`);
}

const all = <S extends Result['state']>(
  checked: readonly Checked[],
  state: S,
): (Extract<Result, { state: S }> & { check: string })[] =>
  checked.flatMap(({ check, results }) =>
    results.flatMap((one) =>
      one.state === state ? [{ ...(one as Extract<Result, { state: S }>), check }] : [],
    ),
  );

const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

/** `roles`: the roles of this machine. */
export function textReport(
  roles: readonly string[],
  checked: readonly Checked[],
  width = 100,
): string {
  const [findings, unknown, fine] = [
    all(checked, 'finding'),
    all(checked, 'not_checked'),
    all(checked, 'ok'),
  ];
  const lines = [
    `${findings.length === 0 ? 'No findings' : count(findings.length, 'finding')} on this ` +
      `machine (${roles.join(', ')})`,
    ...findings.flatMap(({ check, problem, consequence, remedy }, i) => {
      const indent = ' '.repeat(`${i + 1}. `.length);
      return [
        '',
        `${i + 1}. ${wrapped(`${check}: ${problem}.`, indent, width)}`,
        ...(consequence === ''
          ? []
          : [`${indent}So: ${wrapped(`${consequence}.`, `${indent}    `, width)}`]),
        // Do not wrap commands, because people copy them.
        `${indent}Do: ${remedy}`,
      ];
    }),
  ];
  if (unknown.length > 0)
    lines.push('', 'Not checked:', ...unknown.map(({ text }) => `- ${wrapped(text, '  ', width)}`));
  const notes = all(checked, 'note');
  if (notes.length > 0)
    lines.push('', 'Notes:', ...notes.map(({ text }) => `- ${wrapped(text, '  ', width)}`));
  if (fine.length > 0)
    lines.push(
      '',
      'Checked:',
      ...checkedLines(checked).map((line) => `- ${wrapped(line, '  ', width)}`),
    );
  return lines.map(printable).join('\n');
}

/** Replaces control characters, because other programs wrote parts of the output. */
const printable = (line: string): string => line.replaceAll(/[^\P{C}\n]/gu, '?');

const checkedLines = (checked: readonly Checked[]): string[] =>
  checked.flatMap(({ check, results }) => {
    const texts = [...new Set(results.flatMap((one) => (one.state === 'ok' ? [one.text] : [])))];
    return texts.length === 0 ? [] : [`${check}: ${texts.join('; ')}`];
  });

export function jsonReport(roles: readonly string[], checked: readonly Checked[]): string {
  const findings = all(checked, 'finding').map(({ state: _, ...one }) => one);
  const texts = (state: 'ok' | 'note' | 'not_checked') =>
    all(checked, state).map(({ check, text }) => ({ check, text }));
  return JSON.stringify({
    roles,
    findings,
    not_checked: texts('not_checked'),
    notes: texts('note'),
    ok: texts('ok'),
  });
}

export const hasFindings = (checked: readonly Checked[]): boolean =>
  all(checked, 'finding').length > 0;
