/**
 * Reads the content of a delivery: its event and the pushed branches, in the form of each forge.
 * Pure.
 */
import type { IncomingHttpHeaders } from 'node:http';
import type { Forge } from '@berth/wire/hook';
import type { PushedRef, Received } from '../../flow/delivery.ts';

/** Maximum number of characters of an event's name and of a forge's delivery id. */
const MAX_EVENT = 60;
const MAX_ID = 200;

/** Headers with the forge's id of a delivery; the first header that is present counts. */
const ID_HEADERS: Record<Forge, readonly string[]> = {
  github: ['x-github-delivery'],
  gitlab: ['webhook-id', 'idempotency-key', 'x-gitlab-event-uuid'],
  gitea: ['x-gitea-delivery'],
  forgejo: ['x-forgejo-delivery', 'x-gitea-delivery'],
  bitbucket: ['x-request-uuid', 'x-request-id'],
  generic: ['webhook-id', 'x-github-delivery'],
};
const EVENT_HEADERS: Record<Forge, readonly string[]> = {
  github: ['x-github-event'],
  gitlab: ['x-gitlab-event'],
  gitea: ['x-gitea-event'],
  forgejo: ['x-forgejo-event', 'x-gitea-event'],
  bitbucket: ['x-event-key'],
  generic: ['x-github-event'],
};

/** Names of the forges for events. An event that is not listed keeps its own name. */
const EVENTS: ReadonlyMap<string, Received['event']> = new Map([
  ['push', 'push'],
  ['ping', 'ping'],
  ['pull_request', 'merge request'],
  ['pull_request_review', 'merge request'],
  ['create', 'create'],
  ['push hook', 'push'],
  ['tag push hook', 'tag'],
  ['merge request hook', 'merge request'],
  ['repo:push', 'push'],
  ['repo:refs_changed', 'push'],
  ['diagnostics:ping', 'ping'],
]);

export function forgeIdOf(forge: Forge, headers: IncomingHttpHeaders): string | null {
  const id = firstOf(headers, ID_HEADERS[forge]);
  return id === null || id === '' ? null : id.slice(0, MAX_ID);
}

/** Returns the event's name to show, also for an unverified delivery. */
export function eventOf(forge: Forge, headers: IncomingHttpHeaders): Received['event'] {
  const name =
    firstOf(headers, EVENT_HEADERS[forge])
      ?.replaceAll(/[^ -~]/g, '')
      .slice(0, MAX_EVENT) ?? '';
  const event = EVENTS.get(name.toLowerCase());
  if (event !== undefined) return event;
  if (/^pullrequest:|^pr:/.test(name)) return 'merge request';
  if (name !== '') return name;
  // A generic hook needs no event header: its delivery is a push.
  return forge === 'generic' ? 'push' : 'unknown';
}

/** Reads a delivery. `body`: null if it was too large to keep. */
export function readDelivery(
  forge: Forge,
  headers: IncomingHttpHeaders,
  body: Buffer | null,
): Received {
  const event = eventOf(forge, headers);
  if (event !== 'push' || body === null || body.length === 0) return { event, refs: null };
  const json = jsonOf(body, headers['content-type'] ?? '');
  if (json === null) return { event, refs: null };
  return { event, refs: forge === 'bitbucket' ? bitbucketRefs(json) : refsOf(json) };
}

type Json = Record<string, unknown>;
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** Parses the body. GitHub and Gitea can also send the JSON in the form field `payload`. */
function jsonOf(body: Buffer, type: string): Json | null {
  const text = body.toString();
  const json = type.toLowerCase().startsWith('application/x-www-form-urlencoded')
    ? (new URLSearchParams(text).get('payload') ?? '')
    : text;
  try {
    const value: unknown = JSON.parse(json);
    return isObject(value) ? value : null;
  } catch {
    // The signature is valid, so the delivery is still a hint: Berth checks the branch.
    return null;
  }
}

/** GitHub, GitLab, Gitea and Forgejo send `ref` and `after`, which is 0 for a deleted branch. */
function refsOf({ ref, after }: Json): PushedRef[] | null {
  return typeof ref === 'string' ? [pushed(ref, after)] : null;
}

function pushed(ref: string, after: unknown): PushedRef {
  const [, folder, name = ref] = /^refs\/(heads|tags)\/(.+)$/.exec(ref) ?? [];
  const hash = typeof after === 'string' ? after : '';
  return {
    kind: folder === 'tags' ? 'tag' : 'branch',
    name: name.slice(0, 255),
    commit: commitOf(hash),
    deleted: /^0+$/.test(hash),
  };
}

/**
 * Bitbucket Cloud sends `push.changes[].new`, null for a deleted branch; Data Center sends
 * `changes[]`. A push can name several branches.
 */
function bitbucketRefs(json: Json): PushedRef[] | null {
  if (isObject(json['push']) && Array.isArray(json['push']['changes']))
    return json['push']['changes'].filter(isObject).flatMap((change) => {
      const [next, old] = [change['new'], change['old']];
      const ref = [next, old].find(isObject);
      if (ref === undefined || typeof ref['name'] !== 'string') return [];
      const target = isObject(next) && isObject(next['target']) ? next['target']['hash'] : null;
      const kind = ref['type'] === 'tag' ? 'tag' : 'branch';
      return [
        {
          kind,
          name: ref['name'].slice(0, 255),
          commit: commitOf(target),
          deleted: !isObject(next),
        } as const,
      ];
    });
  if (Array.isArray(json['changes']))
    return json['changes'].filter(isObject).flatMap((change) => {
      const { refId, toHash, type } = change;
      return typeof refId === 'string'
        ? [{ ...pushed(refId, toHash), deleted: type === 'DELETE' }]
        : [];
    });
  return null;
}

const commitOf = (hash: unknown): string | null =>
  typeof hash === 'string' && /^([0-9a-f]{40}|[0-9a-f]{64})$/.test(hash) && !/^0+$/.test(hash)
    ? hash
    : null;

function firstOf(headers: IncomingHttpHeaders, names: readonly string[]): string | null {
  for (const name of names) if (typeof headers[name] === 'string') return headers[name];
  return null;
}
