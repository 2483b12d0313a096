/** Versions of Berth: the places that have the number, and the form of CHANGELOG.md. */

/** The sections of a version in CHANGELOG.md, in this order. "Before you upgrade" can be absent. */
const GROUPS = ['Before you upgrade', 'Changes'];
const MOST_LINES = 10;

type Section = {
  title: string;
  groups: { title: string; entries: number }[];
  /** Entries that stand before the first group. */
  ungrouped: number;
};

function sectionsOf(changelog: string): Section[] {
  return changelog
    .split(/^## /m)
    .slice(1)
    .map((section) => ({
      title: section.split('\n', 1)[0] ?? '',
      ungrouped: section.split(/^### /m)[0]?.match(/^- /gm)?.length ?? 0,
      groups: section
        .split(/^### /m)
        .slice(1)
        .map((group) => ({
          title: group.split('\n', 1)[0] ?? '',
          entries: group.match(/^- /gm)?.length ?? 0,
        })),
    }));
}

/** Returns what is wrong with the form of CHANGELOG.md. `version`: that of package.json. */
export function changelogProblems(changelog: string, version: string): string[] {
  const [unreleased, newest, ...older] = sectionsOf(changelog);
  const problems: string[] = [];
  if (unreleased?.title !== 'Unreleased') problems.push('the first section is not “Unreleased”');
  if (!newest?.title.startsWith(`${version} (`))
    problems.push(`the section after “Unreleased” is not “${version} (DATE)”`);
  for (const { title, groups, ungrouped } of [unreleased, newest, ...older].filter(
    (s) => s !== undefined,
  )) {
    const titles = groups.map((group) => group.title);
    if (titles.join() !== GROUPS.filter((group) => titles.includes(group)).join())
      problems.push(
        `${title}: the groups are “${titles.join('”, “')}”, not “${GROUPS.join('”, “')}”`,
      );
    if (ungrouped > 0) problems.push(`${title}: ${ungrouped} lines stand in no group`);
    const entries = groups.reduce((sum, group) => sum + group.entries, 0);
    if (title !== 'Unreleased' && entries > MOST_LINES)
      problems.push(`${title}: ${entries} lines, at most ${MOST_LINES}`);
  }
  return problems;
}

/**
 * Returns CHANGELOG.md with a section for `version` that has the lines of "Unreleased". Throws if
 * there are none or more than ten.
 */
export function withRelease(changelog: string, version: string, date: string): string {
  const entries = (sectionsOf(changelog)[0]?.groups ?? []).reduce((n, g) => n + g.entries, 0);
  if (entries === 0) throw new Error('CHANGELOG.md has no line under “Unreleased”');
  if (entries > MOST_LINES)
    throw new Error(
      `CHANGELOG.md has ${entries} lines under “Unreleased”: a version has at most ${MOST_LINES}; ` +
        'join or shorten them',
    );
  return changelog.replace(/^## Unreleased\n/m, `## Unreleased\n\n## ${version} (${date})\n`);
}

/** The name of the image, which has the version as its tag. */
const IMAGE = /(\bberth:)(\d+\.\d+\.\d+)(\b)/g;

/** The name of the Debian package. */
const PACKAGE = /(\bberth_)(\d+\.\d+\.\d+)(_amd64\.deb)/g;

/** Files that have the version, with the pattern before and after the number. */
export const VERSION_FILES: readonly (readonly [glob: string, pattern: RegExp])[] = [
  ['package.json', /^( {2}"version": ")([^"]+)(",)$/gm],
  ['packages/*/package.json', /^( {2}"version": ")([^"]+)(",)$/gm],
  ['package-lock.json', /^((?: {2}|.*"name": "@?berth.*\n\s+)"version": ")([^"]+)(",)$/gm],
  ['packages/wire/src/version.ts', /^(export const BERTH_VERSION = ')([^']+)(';)$/gm],
  ['deploy/{compose.yml,compose/env.example,Dockerfile}', IMAGE],
  ['docs/{compose,artefacts}.md', IMAGE],
  ['docs/{packages,install}.md', PACKAGE],
  ['packages/agent/src/link/registration.ts', /^(export const AGENT_VERSION = ')([^']+)(';)$/gm],
];

/** Returns the text of a file with another version, and the versions that stood there. */
export function withVersion(
  text: string,
  pattern: RegExp,
  version: string,
): { text: string; before: string[] } {
  const before: string[] = [];
  const replaced = text.replace(pattern, (_, start: string, old: string, end: string) => {
    before.push(old);
    return `${start}${version}${end}`;
  });
  return { text: replaced, before };
}

/** Returns the section of a version, as the notes of its release. Throws if there is none. */
export function notesOf(changelog: string, version: string): string {
  const section = changelog.split(/^(?=## )/m).find((text) => text.startsWith(`## ${version} (`));
  if (section === undefined) throw new Error(`CHANGELOG.md has no section for ${version}`);
  return section.replace(/^## /, '# Berth ').trimEnd() + '\n';
}
