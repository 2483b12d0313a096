/**
 * The answers for one installation: from flags, otherwise from existing settings of this machine,
 * otherwise from questions.
 */
import { isIP } from 'node:net';
import { domainName, emails, httpUrl } from '@berth/kit/config';
import { messageOf } from '@berth/kit/message-of';
import { WrongUsage } from '@berth/kit/wrong-usage';
import { askText, canAsk } from '../lib/ask.ts';
import { createCollector } from '../lib/command.ts';
import { ETC, parseEnv, readText } from '../lib/etc-files.ts';
import { AGENT_ROLES, type AgentRole, type Options, type Target } from './options.ts';

export type Part = 'control-plane' | 'gateway' | 'registry' | 'proxy' | AgentRole;

export type Settings = {
  /** Parts of this run and of older runs: a new part can change the settings of the others. */
  parts: ReadonlySet<Part>;
  /** Empty for an agent, which needs no base domain. */
  baseDomain: string;
  admins: string;
  /** Undefined if no other machine connects to this one. */
  internalAddress: string | undefined;
  /** Internal address of the control plane, for the parts on this machine. */
  controlPlane: string;
  gateway: string;
  /** Undefined if the registry runs on this machine. */
  registry: string | undefined;
  acmeEmail: string | undefined;
  /** Names of the settings that a flag of this run gave. These settings replace existing values. */
  flags: ReadonlySet<string>;
};

/** Returns the domain for projects. Throws if the text is not a domain name. */
export function projectDomain(text: string): string {
  if (text !== text.trim() || /\s/.test(text))
    throw new Error(`must be a domain name without spaces, not "${text}"`);
  if (isIP(text) !== 0)
    throw new Error(
      `must be a domain name, not the address ${text}: each project gets a host name below it`,
    );
  if (text.startsWith('*.'))
    throw new Error(`must be the domain itself: write ${text.slice(2)}, not "${text}"`);
  const name = domainName(text);
  if (!name.includes('.'))
    throw new Error(`must be a full domain name such as apps.example.org, not "${text}"`);
  return name;
}

/** Parses an address at which other machines reach this machine. */
export function internalAddress(text: string): string {
  if (isIP(text) === 0) throw new Error(`must be an IP address of this machine, not "${text}"`);
  if (/^(127\.|::1$|0\.0\.0\.0$|::$)/.test(text))
    throw new Error(`must be an address that other machines reach, not ${text}`);
  return text;
}

const oneEmail = (text: string): string => {
  const [first, ...more] = emails(text);
  if (first === undefined) throw new Error('must be an e-mail address');
  return [first, ...more].join(',');
};

/** Parses a registry host such as `registry.example.org:5000`, optionally with a path. */
export function registryHost(text: string): string {
  if (!/^[a-z0-9.-]+(:\d{1,5})?(\/[a-z0-9._/-]+)?$/i.test(text))
    throw new Error(`must be host or host:port without a scheme, not "${text}"`);
  return text;
}

export function partsOf(target: Target, roles: ReadonlySet<AgentRole>): Set<Part> {
  if (target === 'agent') return new Set(roles);
  return new Set(
    target === 'all' ? ['control-plane', 'gateway', 'registry', 'proxy', ...roles] : [target],
  );
}

/** The environment file of each part. */
export const ENV_FILES: Readonly<Record<Part | 'relay', string>> = {
  'control-plane': `${ETC}/control-plane.env`,
  gateway: `${ETC}/gateway.env`,
  relay: `${ETC}/relay.env`,
  registry: `${ETC}/registry.env`,
  proxy: `${ETC}/proxy.env`,
  builder: `${ETC}/agent-builder.env`,
  deploy: `${ETC}/agent-deploy.env`,
};

export const addressUrl = (address: string, port: number): string =>
  `http://${isIP(address) === 6 ? `[${address}]` : address}:${port}`;

/** Returns the settings. Throws WrongUsage that lists all missing or wrong flags. */
export async function settingsOf({ target, values, roles }: Options): Promise<Settings> {
  const there = new Map(
    Object.entries(ENV_FILES).map(([part, path]) => [part, parseEnv(readText(path) ?? '')]),
  );
  const earlier = (name: string, ...parts: (Part | 'relay')[]): string | undefined =>
    parts
      .map((part) => there.get(part)?.get(name))
      .find((value) => value !== undefined && value !== '');
  const all = createCollector();
  const agents = new Set<AgentRole>(roles);
  if (target === 'agent' && agents.size === 0)
    agents.add(
      await all.of(
        () =>
          answer('What does this machine do: builder or deploy?', '--role', undefined, agentRole),
        'deploy',
      ),
    );
  const parts = new Set([...partsOf(target, agents), ...partsHere(there)]);
  const onlyAgents = [...parts].every((part) => part === 'builder' || part === 'deploy');
  const local = parts.has('control-plane');

  const baseDomain = onlyAgents
    ? ''
    : await all.of(
        () =>
          answer(
            'Domain of your projects, for example apps.example.org',
            '--base-domain',
            values['base-domain'] ?? earlier('BASE_DOMAIN', 'control-plane', 'gateway', 'proxy'),
            projectDomain,
          ),
        '',
      );
  const needsAdmin = parts.has('control-plane') || parts.has('gateway');
  const admins = needsAdmin
    ? await all.of(
        () =>
          answer(
            'E-mail address of the first admin',
            '--admin',
            values.admin ?? earlier('ADMIN_EMAILS', 'control-plane', 'gateway'),
            oneEmail,
          ),
        '',
      )
    : '';
  const internal = values['internal-address'] ?? addressOf(earlier('LISTEN', 'control-plane'));
  if (internal !== undefined)
    await all.of(() => checked('--internal-address', internal, internalAddress), '');
  const controlPlane = local
    ? addressUrl(internal ?? '127.0.0.1', 8080)
    : await all.of(
        () =>
          answer(
            'Internal address of the control plane, for example http://10.0.0.1:8080',
            '--control-plane',
            values['control-plane'] ??
              earlier('CONTROL_PLANE_URL', 'builder', 'deploy', 'gateway', 'relay'),
            httpUrl,
          ),
        '',
      );
  const gateway =
    values.gateway === undefined
      ? (earlier('AUTH_SERVICE_URL', 'control-plane', 'proxy') ?? 'http://127.0.0.1:4180')
      : await all.of(() => checked('--gateway', values.gateway ?? '', httpUrl), '');
  const acme =
    !parts.has('proxy') ||
    values['acme-email'] !== undefined ||
    readText(`${ETC}/traefik/traefik.yml`) !== undefined
      ? values['acme-email']
      : await all.of(
          () =>
            answer(
              'E-mail address for the certificate authority',
              '--acme-email',
              admins.split(',')[0] || undefined,
              oneEmail,
            ),
          '',
        );
  const { registry: host } = values;
  const registry =
    host === undefined
      ? undefined
      : await all.of(() => checked('--registry', host, registryHost), '');
  if (all.problems.length > 0) throw new WrongUsage(all.problems.join('\n  '));
  return {
    parts,
    baseDomain,
    admins,
    internalAddress: internal,
    controlPlane,
    gateway,
    registry,
    acmeEmail: acme,
    flags: flagsIn(values),
  };
}

export type ComposeAnswers = Pick<
  Settings,
  'baseDomain' | 'admins' | 'internalAddress' | 'flags'
> & { acmeEmail: string };

/** Returns the settings for compose. `there`: settings of an older run. */
export async function composeSettings(
  values: Options['values'],
  there: ReadonlyMap<string, string>,
): Promise<ComposeAnswers> {
  const flagOrSetting = (flag: string | undefined, name: string): string | undefined =>
    flag ?? (there.get(name) || undefined);
  const all = createCollector();
  const baseDomain = await all.of(
    () =>
      answer(
        'Domain of your projects, for example apps.example.org',
        '--base-domain',
        flagOrSetting(values['base-domain'], 'BASE_DOMAIN'),
        projectDomain,
      ),
    '',
  );
  const admins = await all.of(
    () =>
      answer(
        'E-mail address of the first admin',
        '--admin',
        flagOrSetting(values.admin, 'ADMIN_EMAILS'),
        oneEmail,
      ),
    '',
  );
  const internal = flagOrSetting(values['internal-address'], 'INTERNAL_IP');
  const ownAddress =
    internal === undefined
      ? undefined
      : await all.of(() => checked('--internal-address', internal, internalAddress), '');
  // If the admin is missing too, report only the missing admin.
  const acme =
    flagOrSetting(values['acme-email'], 'ACME_EMAIL') ??
    (admins === '' ? undefined : admins.split(',')[0]);
  const acmeEmail =
    acme === undefined ? '' : await all.of(() => checked('--acme-email', acme, oneEmail), '');
  if (all.problems.length > 0) throw new WrongUsage(all.problems.join('\n  '));
  return {
    baseDomain,
    admins,
    acmeEmail,
    internalAddress: ownAddress,
    flags: flagsIn(values),
  };
}

const flagsIn = (values: Options['values']): Set<string> =>
  new Set(Object.keys(values).filter((name) => values[name as keyof typeof values] !== undefined));

function partsHere(there: ReadonlyMap<string, ReadonlyMap<string, string>>): Part[] {
  const parts: Part[] = ['control-plane', 'gateway', 'registry', 'proxy', ...AGENT_ROLES];
  return parts.filter((part) => (there.get(part)?.size ?? 0) > 0);
}

const agentRole = (text: string): AgentRole => {
  const role = AGENT_ROLES.find((one) => one === text.trim());
  if (role === undefined) throw new Error(`must be builder or deploy, not "${text}"`);
  return role;
};

/** Returns the internal address in the control plane's LISTEN, if other machines reach it. */
function addressOf(listen: string | undefined): string | undefined {
  const host = listen?.replace(/:\d+$/, '').replaceAll(/[[\]]/g, '');
  return host === undefined || isIP(host) === 0 || /^(127\.|::1$|0\.0\.0\.0$|::$)/.test(host)
    ? undefined
    : host;
}

function checked<T>(flag: string, text: string, parse: (text: string) => T): T {
  try {
    return parse(text);
  } catch (error) {
    throw new WrongUsage(`${flag}: ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the flag's value, or asks for it in the terminal if the flag is missing. */
async function answer<T>(
  question: string,
  flag: string,
  known: string | undefined,
  parse: (text: string) => T,
): Promise<T> {
  if (known !== undefined) return checked(flag, known, parse);
  if (!canAsk())
    throw new WrongUsage(`${flag} is missing, and there is no terminal in which to ask`);
  const problem = (text: string): string | undefined => {
    try {
      parse(text);
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  };
  return parse(await askText(question, { problem }));
}
