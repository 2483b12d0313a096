import { ApiError } from '@berth/wire/client';
import { useState } from 'react';
import { call } from '../api/client.ts';
import { reportProblem } from '../api/connection.ts';
import { PageLayout } from '../parts/page-layout.tsx';
import { useMe } from '../parts/permissions.ts';
import { Problem } from '../parts/problem.tsx';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Button } from '../ui/controls.tsx';
import { PasswordForm } from './account/password-form.tsx';
import { TokenForm, Tokens } from './account/tokens.tsx';

export function AccountPage() {
  const me = useMe();
  const [token, setToken] = useState<string | null>(null);
  const [signOutError, setSignOutError] = useState<unknown>(null);
  return (
    <PageLayout
      title="Your account"
      lead={`${me.email}, role ${me.role}`}
      actions={<Button onClick={() => void signOut().catch(setSignOutError)}>Sign out</Button>}
    >
      <Problem error={signOutError} what="Signing out" />
      <ShownOnce what="token" secret={token} onClose={() => setToken(null)} />
      <TokenForm onCreated={setToken} />
      <Tokens />
      <PasswordForm />
    </PageLayout>
  );
}

/** Signs out. Throws if the cookie still signs this browser in, because the person must know. */
async function signOut(): Promise<void> {
  try {
    await call('logout', {});
  } catch (error) {
    const hasEnded = error instanceof ApiError && error.status === 401;
    if (!hasEnded) throw error;
  }
  reportProblem('signed_out');
  location.assign('/');
}
