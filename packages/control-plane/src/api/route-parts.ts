/** Parts of the API that several routes share. Each server creates its own. */
import { createAgents, type Deps as AgentDeps } from './agents.ts';
import { type AssertionDeps, createAssertions } from './auth/assertions.ts';
import { createAttempts } from './auth/attempts.ts';
import { createCallers, type Deps as CallerDeps } from './auth/callers.ts';
import { createPasswords } from './auth/passwords.ts';
import { createSessionCookies } from './auth/session-cookie.ts';
import { createSignIns, type Deps as SignInDeps } from './auth/sign-ins.ts';
import { createTokens } from './auth/tokens.ts';
import type { Changes } from '../domain/platform/changes.ts';
import type { Limits } from '../domain/deployments/facts.ts';
import type { AuditStore } from '../domain/identity/identity-stores.ts';
import { createReaders, type ReaderDeps } from './runtime-logs/readers.ts';
import { createExecSessions, type Deps as ExecSessionDeps } from './exec/sessions.ts';
import { createHolds } from './long-poll.ts';
import { createNodeChangeLog } from './node-changes.ts';
import { createNodeEngines } from './node-engines.ts';
import { createNodePorts } from './node-ports.ts';
import { createQuarantine } from './node-quarantine.ts';
import { createNodeSettings } from './node-settings.ts';
import { createNodeVersions } from './node-versions.ts';
import type { ApiSettings } from './settings.ts';

/** Limit of wrong agent secrets from one network. */
const AGENT_SECRETS_A_MINUTE = 100;
/**
 * Limit of device codes for one network. Each sign-in on a device needs one, and another if it
 * expires.
 */
const DEVICE_CODES_A_MINUTE = 30;
/** Limit of refused hook deliveries from one network. */
const REFUSED_DELIVERIES_A_MINUTE = 60;
/** Limit of notification tests by one person, and to one recipient. */
const NOTIFICATION_TESTS_A_MINUTE = 10;
/**
 * Limit of failed sign-ins from one network over all accounts: high enough for an office, too low
 * to try one password at every account.
 */
const SIGN_INS_A_MINUTE = 60;

export type Deps = ReaderDeps &
  Omit<ExecSessionDeps, 'callers' | 'execSessions'> &
  Omit<AgentDeps, 'agentSecrets' | 'requireSecrets' | 'guesses'> &
  Omit<CallerDeps, 'tokens' | 'gatewaySecrets'> &
  Omit<SignInDeps, 'tokens' | 'onSessionEnded'> & {
    audit: Pick<AuditStore, 'append'>;
    changes: Pick<Changes, 'notify'>;
    limits: Limits;
    settings: Omit<AssertionDeps, 'now'> &
      Pick<
        ApiSettings,
        'agentSecrets' | 'requireSecrets' | 'gatewaySecrets' | 'jwtSecrets' | 'passwordCost'
      >;
  };
export type RouteParts = ReturnType<typeof createRouteParts>;

export function createRouteParts(deps: Deps) {
  const { settings, changes, limits, now } = deps;
  const clock = { now, offlineMs: limits.offlineMs };
  const tokens = createTokens(settings.jwtSecrets, now);
  const callers = createCallers({ ...deps, tokens, gatewaySecrets: settings.gatewaySecrets });
  return {
    holds: createHolds(),
    readers: createReaders(deps),
    callers,
    execSessions: createExecSessions({ ...deps, callers }),
    cookies: createSessionCookies(settings.publicUrl),
    agents: createAgents({
      ...deps,
      agentSecrets: settings.agentSecrets,
      requireSecrets: settings.requireSecrets,
      guesses: createAttempts(now, AGENT_SECRETS_A_MINUTE),
    }),
    signIns: createSignIns({ ...deps, tokens, onSessionEnded: () => changes.notify('access') }),
    passwords: createPasswords(settings.passwordCost),
    assertions: createAssertions({
      authServiceUrl: settings.authServiceUrl,
      publicUrl: settings.publicUrl,
      now,
    }),
    nodeChanges: createNodeChangeLog(deps.audit, deps.log, now),
    nodeNotes: [
      createNodeSettings(clock),
      createNodeEngines(clock),
      createNodePorts(clock),
      createNodeVersions(clock),
    ],
    quarantine: createQuarantine(clock),
    signInAttempts: createAttempts(now),
    strangerAttempts: createAttempts(now, SIGN_INS_A_MINUTE),
    testAttempts: createAttempts(now, NOTIFICATION_TESTS_A_MINUTE),
    refusedDeliveries: createAttempts(now, REFUSED_DELIVERIES_A_MINUTE),
    codeGuesses: createAttempts(now),
    codeRequests: createAttempts(now, DEVICE_CODES_A_MINUTE),
  };
}
