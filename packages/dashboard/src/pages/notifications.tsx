import { useState } from 'react';
import { PageLayout } from '../parts/page-layout.tsx';
import { hasRole, useMe } from '../parts/permissions.ts';
import { ShownOnce } from '../parts/shown-once.tsx';
import { Note } from '../ui/feedback.tsx';
import { NotificationForm } from './notifications/notification-form.tsx';
import { Targets } from './notifications/targets.tsx';

export const NotificationsPage = () => {
  const me = useMe();
  if (!hasRole(me.role, 'developer'))
    return (
      <PageLayout title="Notifications">
        <Note title="Only developers and admins see this page">Your role is {me.role}.</Note>
      </PageLayout>
    );
  return <Notifications isAdmin={me.role === 'admin'} />;
};

function Notifications({ isAdmin }: { isAdmin: boolean }) {
  const [secret, setSecret] = useState<string | null>(null);
  return (
    <PageLayout
      title="Notifications"
      lead="Berth reports each problem once, and again when it is over."
    >
      <ShownOnce what="signing secret" secret={secret} onClose={() => setSecret(null)} />
      <Targets />
      <NotificationForm isAdmin={isAdmin} onCreated={setSecret} />
    </PageLayout>
  );
}
