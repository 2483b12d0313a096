/** Wraps a page for admins, and tells other users that they cannot use it. */
import type { ReactNode } from 'react';
import { PageLayout } from './page-layout.tsx';
import { useRoleReason } from './permissions.ts';
import { Note } from '../ui/feedback.tsx';

export function AdminOnly({ title, children }: { title: string; children: ReactNode }) {
  const reason = useRoleReason('admin');
  if (reason === null) return children;
  return (
    <PageLayout title={title}>
      <Note title="Only admins see this page">
        Not possible: {reason}. Ask an admin of your Berth.
      </Note>
    </PageLayout>
  );
}
