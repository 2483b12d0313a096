/**
 * Commands that change one entry of a list which the API takes as a whole, run by several people at
 * the same time.
 */
import { beforeAll, beforeEach, expect, test } from 'vitest';
import { createProject } from '../../control-plane/test/api/harness.ts';
import { PASSWORD, type Person, serveOnce, signedIn } from './support.ts';

const served = serveOnce();
const PEOPLE = ['ada', 'ben', 'cyd', 'dot'].map((name) => `${name}@example.com`);
let who: Person;

async function berth(line: string, stdin?: string): Promise<{ [field: string]: unknown }> {
  const { code, out, err } = await who.berth(
    [...line.split(' '), '--json'],
    stdin === undefined ? {} : { stdin },
  );
  expect(err).toBe('');
  expect(code).toBe(0);
  return JSON.parse(out);
}
const members = async (project: string): Promise<unknown[]> => {
  const { members } = (await berth(`project members list ${project}`)) as {
    members: { email: string }[];
  };
  return members.map(({ email }) => email).toSorted();
};

beforeAll(async () => {
  who = await signedIn(served.url);
  for (const email of PEOPLE)
    await berth(`user create ${email} --role developer --password`, PASSWORD);
}, 60_000);
let project = '';
let count = 0;
beforeEach(async () => {
  project = `shop-${++count}`;
  await createProject(served.api, { name: project, domain_prefix: project });
});

test('each of four members that are added at once is a member afterwards', async () => {
  await Promise.all(
    PEOPLE.map((email) => berth(`project members add ${email} --project ${project}`)),
  );
  expect(await members(project)).toEqual(PEOPLE);
});

test('a removal keeps the member that somebody else adds meanwhile', async () => {
  const [ada, ben] = PEOPLE;
  await berth(`project members add ${ada} --project ${project}`);
  await Promise.all([
    berth(`project members add ${ben} --project ${project}`),
    berth(`project members remove ${ada} --yes --project ${project}`),
  ]);
  expect(await members(project)).toEqual([ben]);
});

test('each of four domains that are added at once is a domain afterwards', async () => {
  const domains = ['a', 'b', 'c', 'd'].map((name) => `${name}-${count}.example.net`);
  await Promise.all(domains.map((domain) => berth(`domain add ${domain} --project ${project}`)));
  const { items } = (await berth(`domain list ${project}`)) as { items: { domain: string }[] };
  expect(items.map(({ domain }) => domain).toSorted()).toEqual(domains);
});

test('the removal of the last member without an answer is refused and changes nothing', async () => {
  const [ada] = PEOPLE;
  await berth(`project members add ${ada} --project ${project}`);
  const { code, err } = await who.berth([
    'project',
    'members',
    'remove',
    String(ada),
    '--project',
    project,
  ]);
  expect(code).toBe(2);
  expect(err).toContain('every user sees it');
  expect(await members(project)).toEqual([ada]);
});
